//! The order of passes: every row once in each round, so that drift of the machine hits all alike.

/// Samples of every row, in the order of the rounds.
pub(crate) type Samples<T> = Vec<Vec<T>>;

/// Runs one uncounted pass of every row and then `runs` rounds.
///
/// A round begins further on in the list each time, so that over all rounds a row is measured early
/// and late.
pub(crate) fn interleave<T, E>(
    rows: usize,
    runs: usize,
    mut pass: impl FnMut(usize) -> Result<T, E>,
) -> Result<Samples<T>, E> {
    for row in 0..rows {
        pass(row)?;
    }
    let mut samples: Samples<T> = Vec::new();
    samples.resize_with(rows, || Vec::with_capacity(runs));
    for round in 0..runs {
        for row in order(rows, runs, round) {
            samples[row].push(pass(row)?);
        }
    }
    Ok(samples)
}

/// The rows in the order in which one round measures them.
fn order(rows: usize, rounds: usize, round: usize) -> impl Iterator<Item = usize> {
    let step = rows.div_ceil(rounds.max(1));
    (0..rows).map(move |n| (n + round * step) % rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_row_once_and_begins_elsewhere() {
        let orders: Vec<Vec<usize>> = (0..3).map(|round| order(6, 3, round).collect()).collect();
        assert_eq!(orders[0], [0, 1, 2, 3, 4, 5]);
        assert_eq!(orders[1], [2, 3, 4, 5, 0, 1]);
        assert_eq!(orders[2], [4, 5, 0, 1, 2, 3]);
        let more_rounds: Vec<usize> = order(2, 5, 3).collect();
        assert_eq!(more_rounds, [1, 0]);
    }

    #[test]
    fn the_first_pass_of_each_row_is_not_counted_and_rows_take_turns() {
        let mut passes = Vec::new();
        let samples = interleave(2, 2, |row| {
            passes.push(row);
            Ok::<_, ()>(passes.len())
        });
        assert_eq!(passes, [0, 1, 0, 1, 1, 0]);
        assert_eq!(samples, Ok(vec![vec![3, 6], vec![4, 5]]));
    }

    #[test]
    fn a_pass_that_fails_ends_the_measurement() {
        let mut passes = 0;
        let result = interleave(3, 3, |row| {
            passes += 1;
            if passes == 5 { Err(row) } else { Ok(()) }
        });
        assert_eq!((result, passes), (Err(1), 5));
    }
}
