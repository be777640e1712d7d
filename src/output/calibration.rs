//! The long calibration for people: a row for each method, a column for each number of threads.

use std::io::{self, Write};

use prezero_memory::ByteSize;

use super::bench_clear::crossing;
use super::figures::{Unique, plus_minus, table};
use crate::measure::clear::thread_count;
use crate::report::calibration::CalibrationFacts;

pub(super) fn calibration(out: &mut impl Write, calibration: &CalibrationFacts) -> io::Result<()> {
    let CalibrationFacts { rows, chosen, .. } = calibration;
    let page = ByteSize(calibration.page_size);
    let memory = match calibration.hugepages {
        true => format!("{page} hugepages"),
        false => "ordinary memory, because too few hugepages are free".to_owned(),
    };
    let bytes = ByteSize(calibration.bytes);
    writeln!(
        out,
        "\nGB/s (10^9 bytes) of clearing {bytes} of {memory}, mean ± σ"
    )?;
    let threads: Vec<usize> = rows.iter().map(|row| row.threads).unique().collect();
    let mut head = vec![String::new()];
    head.extend(threads.iter().map(|threads| thread_count(*threads)));
    let lines = rows.iter().map(|row| row.method).unique().map(|method| {
        let mut line = vec![method.to_owned()];
        for threads in &threads {
            let row = rows
                .iter()
                .find(|row| row.method == method && row.threads == *threads);
            line.push(row.map_or(String::new(), |row| {
                plus_minus(row.gbps_mean, row.gbps_stdev, 1)
            }));
        }
        line
    });
    writeln!(out, "\n{}", table(head, lines.collect()))?;
    if let Some(crossing) = &calibration.crossing {
        self::crossing(out, crossing)?;
    }
    writeln!(out, "chosen    {}: {}", chosen.method, chosen.why)
}
