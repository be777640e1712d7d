//! Rows as comma-separated values, with the names of the columns first.

use std::io::Write;

use serde::Serialize;

use crate::report::bench_clear::RowFacts;

/// A row of `bench clear` without its samples. Fields without a value are empty.
#[derive(Serialize)]
struct ClearLine {
    method: &'static str,
    stores: &'static str,
    chunk: Option<u64>,
    threads: usize,
    page_size: u64,
    bytes: u64,
    runs: usize,
    gbps_mean: f64,
    gbps_stdev: Option<f64>,
    gbps_min: f64,
    gbps_max: f64,
    ratio: Option<f64>,
    ratio_stdev: Option<f64>,
    ratio_median: Option<f64>,
}

impl From<&RowFacts> for ClearLine {
    fn from(row: &RowFacts) -> Self {
        Self {
            method: row.method,
            stores: row.stores,
            chunk: row.chunk,
            threads: row.threads,
            page_size: row.page_size,
            bytes: row.bytes,
            runs: row.runs,
            gbps_mean: row.gbps_mean,
            gbps_stdev: row.gbps_stdev,
            gbps_min: row.gbps_min,
            gbps_max: row.gbps_max,
            ratio: row.ratio.map(|ratio| ratio.mean),
            ratio_stdev: row.ratio.and_then(|ratio| ratio.stdev),
            ratio_median: row.ratio.map(|ratio| ratio.median),
        }
    }
}

/// The rows of `bench clear`.
pub(crate) fn clear(to: impl Write, rows: &[RowFacts]) -> csv::Result<()> {
    let mut lines = csv::Writer::from_writer(to);
    for row in rows {
        lines.serialize(ClearLine::from(row))?;
    }
    lines.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::bench_clear::tests::fixed;

    #[test]
    fn fixed_rows_have_their_lines() {
        let mut rows = fixed(&["rep-stosb"]).rows;
        rows.truncate(2);
        rows[1].gbps_stdev = None;
        rows[1].ratio = None;
        let mut out = Vec::new();
        clear(&mut out, &rows).expect("memory takes it");
        let wanted = "\
method,stores,chunk,threads,page_size,bytes,runs,gbps_mean,gbps_stdev,gbps_min,gbps_max,ratio,ratio_stdev,ratio_median
rep-stosb,cached,4096,1,2097152,4294967296,5,9.0,0.25,8.5,9.5,1.0,0.0625,1.0
rep-stosb,cached,1073741824,1,2097152,4294967296,5,10.0,,9.5,10.5,,,
";
        assert_eq!(String::from_utf8(out).expect("UTF-8"), wanted);
    }
}
