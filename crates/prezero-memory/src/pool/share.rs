//! How many segments each node gets.

/// Raises `have` (segments on each node) by `more` in all, so that the nodes end as even as they can:
/// always on a node that has the fewest, the first of those. Returns what each node gets.
pub(super) fn level(have: &[u64], more: u64) -> Vec<u64> {
    let mut total = have.to_vec();
    if total.is_empty() {
        return total;
    }
    let mut left = more;
    while left > 0 {
        let fewest = total.iter().copied().min().unwrap_or(0);
        let next = total.iter().copied().filter(|n| *n > fewest).min();
        let low = total.iter().filter(|n| **n == fewest).count() as u64;
        // Whole steps for all of the lowest at once, up to the next higher node.
        let room = next.map_or(u64::MAX, |next| next - fewest);
        let step = room.min(left / low);
        for n in total.iter_mut().filter(|n| **n == fewest) {
            let one = if step > 0 { step } else { u64::from(left > 0) };
            *n += one;
            left -= one;
        }
    }
    total
        .iter()
        .zip(have)
        .map(|(total, have)| total - have)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remainder_goes_to_the_first() {
        assert_eq!(level(&[0, 0, 0], 8), [3, 3, 2]);
        assert_eq!(level(&[0, 0], 1), [1, 0]);
        assert_eq!(level(&[5], 3), [3]);
        assert_eq!(level(&[], 3), [] as [u64; 0]);
    }

    #[test]
    fn what_is_there_already_counts() {
        assert_eq!(level(&[4, 0], 4), [0, 4]);
        assert_eq!(level(&[4, 0], 6), [1, 5]);
        assert_eq!(level(&[9, 1, 2], 2), [0, 2, 0]);
    }

    proptest::proptest! {
        #[test]
        fn all_are_given_out_and_nobody_who_gets_some_ends_above_another(
            have in proptest::collection::vec(0..50_u64, 1..9), more in 0..1000_u64
        ) {
            let got = level(&have, more);
            proptest::prop_assert_eq!(got.iter().sum::<u64>(), more);
            let ends: Vec<u64> = have.iter().zip(&got).map(|(h, g)| h + g).collect();
            let fewest = *ends.iter().min().unwrap();
            for (end, got) in ends.iter().zip(&got) {
                proptest::prop_assert!(*got == 0 || *end <= fewest + 1);
            }
        }
    }
}
