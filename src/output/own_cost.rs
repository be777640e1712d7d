//! What a measurement's own work adds to its passes, for people.

use std::io::{self, Write};

use crate::report::own_cost::InstrumentFacts;

/// One line; `pass` is what one is called.
pub(super) fn own_cost(out: &mut impl Write, own: &InstrumentFacts, pass: &str) -> io::Result<()> {
    let (time, part) = (time(own.cost_ns), percent(own.part_of_shortest));
    writeln!(
        out,
        "own cost  the instrument adds {time} to a {pass}, {part} of the shortest"
    )
}

#[allow(clippy::cast_precision_loss)] // a measured figure
fn time(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

fn percent(part: f64) -> String {
    match part * 100.0 {
        ..0.001 => "less than 0.001 %".to_owned(),
        percent @ ..0.1 => format!("{percent:.3} %"),
        percent => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_has_the_unit_that_suits_it() {
        let line = |cost_ns, part_of_shortest| {
            let own = InstrumentFacts {
                cost_ns,
                part_of_shortest,
                samples_ns: Vec::new(),
            };
            let mut out = Vec::new();
            own_cost(&mut out, &own, "pass").expect("memory takes it");
            String::from_utf8(out).expect("UTF-8")
        };
        for (cost, part, wanted) in [
            (41, 0.0, "41 ns to a pass, less than 0.001 %"),
            (12_340, 0.000_29, "12.3 µs to a pass, 0.029 %"),
            (1_250_000, 0.0125, "1.25 ms to a pass, 1.2 %"),
        ] {
            let wanted = format!("own cost  the instrument adds {wanted} of the shortest\n");
            assert_eq!(line(cost, part), wanted);
        }
    }
}
