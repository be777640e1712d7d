//! Sharing a whole number out in proportion to weights.

/// Shares `total` out in proportion to `weights`, by largest remainder: the shares add up to
/// `total` and each is within one of its exact proportion. Equal shares where no weight counts.
pub(crate) fn apportion(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    if weights.is_empty() {
        return Vec::new();
    }
    if sum == 0 {
        return apportion(total, &vec![1; weights.len()]);
    }
    let exact = |weight: u64| u128::from(total) * u128::from(weight);
    // A share is at most `total`, which is a u64.
    let mut shares: Vec<u64> = weights
        .iter()
        .map(|&weight| u64::try_from(exact(weight) / sum).unwrap_or(total))
        .collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|&n| std::cmp::Reverse(exact(weights[n]) % sum));
    let mut left = total - shares.iter().sum::<u64>();
    for n in by_remainder {
        if left == 0 {
            break;
        }
        shares[n] += 1;
        left -= 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_weights() {
        assert_eq!(apportion(10, &[1, 1]), [5, 5]);
        assert_eq!(apportion(10, &[1, 2]), [3, 7]);
        assert_eq!(apportion(3, &[0, 0]), [2, 1]);
        assert_eq!(apportion(7, &[]), [0; 0]);
    }

    proptest::proptest! {
        #[test]
        fn shares_add_up_and_stay_within_one_of_exact(
            total: u64, weights in proptest::collection::vec(0..u64::MAX, 1..20)
        ) {
            let shares = apportion(total, &weights);
            let sum: u128 = shares.iter().map(|&share| u128::from(share)).sum();
            proptest::prop_assert_eq!(sum, u128::from(total));
            let weight_sum: u128 = weights.iter().map(|&w| u128::from(w)).sum();
            for (&share, &weight) in shares.iter().zip(&weights) {
                let exact = u128::from(total) * u128::from(weight);
                if let Some(floor) = exact.checked_div(weight_sum) {
                    proptest::prop_assert!((floor..=floor + 1).contains(&u128::from(share)));
                }
            }
        }
    }
}
