//! Figures with their spread, in tables.

use comfy_table::{CellAlignment, Table, presets};

/// `24.5 ±0.3`; without the spread where it is not known.
pub(super) fn plus_minus(mean: f64, stdev: Option<f64>, digits: usize) -> String {
    match stdev {
        Some(stdev) => format!("{mean:.digits$} ±{stdev:.digits$}"),
        None => format!("{mean:.digits$}"),
    }
}

/// A table without lines, everything to the right.
pub(super) fn table(head: Vec<String>, lines: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(head);
    table.add_rows(lines);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// Values in the order in which they first come, each once.
pub(super) trait Unique: Iterator + Sized
where
    Self::Item: PartialEq + Copy,
{
    fn unique(self) -> impl Iterator<Item = Self::Item> {
        let mut seen = Vec::new();
        self.filter(move |value| {
            let new = !seen.contains(value);
            if new {
                seen.push(*value);
            }
            new
        })
    }
}

impl<I: Iterator> Unique for I where I::Item: PartialEq + Copy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_show_their_spread_if_it_is_known() {
        assert_eq!(plus_minus(24.46, Some(0.31), 1), "24.5 ±0.3");
        assert_eq!(plus_minus(2.0, None, 2), "2.00");
    }

    #[test]
    fn unique_keeps_the_order() {
        assert_eq!(
            [3, 1, 3, 2, 1].into_iter().unique().collect::<Vec<_>>(),
            [3, 1, 2]
        );
    }
}
