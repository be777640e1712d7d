//! The order of passes: every row once in each round, so that drift of the machine hits all alike.

/// Samples of every row, in the order of the rounds.
pub(crate) type Samples<T> = Vec<Vec<T>>;

/// Runs one uncounted pass of every row and then `runs` rounds.
///
/// A round begins further on in the list each time, so that over all rounds a row is measured early
/// and late, and every second one goes through it backwards, so that a row does not always follow the same
/// one, which may leave caches, clocks or free pages to it in its own way.
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
    let first = round * step;
    (0..rows).map(move |n| match round % 2 {
        0 => (first + n) % rows,
        _ => (first + rows - n) % rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_row_once_begins_elsewhere_and_turns_round() {
        let orders: Vec<Vec<usize>> = (0..3).map(|round| order(6, 3, round).collect()).collect();
        assert_eq!(orders[0], [0, 1, 2, 3, 4, 5]);
        assert_eq!(orders[1], [2, 1, 0, 5, 4, 3]);
        assert_eq!(orders[2], [4, 5, 0, 1, 2, 3]);
        let more_rounds: Vec<usize> = order(2, 5, 3).collect();
        assert_eq!(more_rounds, [1, 0]);
    }

    #[test]
    fn over_two_rounds_a_row_follows_both_of_its_neighbours() {
        for (rows, rounds) in [(5, 5), (6, 3), (7, 2), (24, 5)] {
            let mut before = vec![Vec::new(); rows];
            for round in 0..rounds {
                let order: Vec<usize> = order(rows, rounds, round).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.iter().copied().eq(0..rows), "{order:?}");
                for pair in order.windows(2) {
                    before[pair[1]].push(pair[0]);
                }
            }
            // A round's first row follows the last one's; all others follow one of the two.
            for (row, before) in before.iter().enumerate() {
                let sides = [(row + 1) % rows, (row + rows - 1) % rows];
                assert!(before.iter().all(|before| sides.contains(before)), "{row}");
            }
            let both = |(row, before): &(usize, &Vec<usize>)| {
                let sides = [(row + 1) % rows, (row + rows - 1) % rows];
                sides.iter().all(|side| before.contains(side))
            };
            let found = before.iter().enumerate().filter(both).count();
            assert!(
                found + 2 >= rows,
                "{found} of {rows} rows in {rounds} rounds"
            );
        }
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
