//! Rows as comma-separated values, with the names of the columns first.

use std::io::Write;

use serde::Serialize;

use crate::report::bench_clear::RowFacts;
use crate::report::bench_neighbour::{NeighbourReport, SetFacts};
use crate::report::bench_vm::RowFacts as VmRow;
use crate::report::counters::CountsFacts;
use crate::report::{bench_mmap, bench_neighbour};

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
    cycles: Option<u64>,
    l1_dcache_loads: Option<u64>,
    l1_dcache_load_misses: Option<u64>,
}

impl From<&RowFacts> for ClearLine {
    fn from(row: &RowFacts) -> Self {
        let [cycles, l1_dcache_loads, l1_dcache_load_misses] = counts(row.counters.as_ref());
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
            cycles,
            l1_dcache_loads,
            l1_dcache_load_misses,
        }
    }
}

/// What a pass counted on average, where the CPU counts.
fn counts(counters: Option<&CountsFacts>) -> [Option<u64>; 3] {
    counters.map_or([None; 3], |counts| {
        [
            counts.cycles,
            counts.l1_dcache_loads,
            counts.l1_dcache_load_misses,
        ]
    })
}

/// The rows of `bench clear`.
pub(crate) fn clear(to: impl Write, rows: &[RowFacts]) -> csv::Result<()> {
    write(to, rows.iter().map(ClearLine::from))
}

/// A row of `bench mmap` without its samples.
#[derive(Serialize)]
struct MmapLine {
    function: &'static str,
    page_size: u64,
    bytes: u64,
    threads: usize,
    loops: usize,
    gbps_mean: f64,
    gbps_stdev: Option<f64>,
    gbps_min: f64,
    gbps_max: f64,
    perf_gib_per_second: f64,
    perf_error_percent: Option<f64>,
    cycles: Option<u64>,
    l1_dcache_loads: Option<u64>,
    l1_dcache_load_misses: Option<u64>,
}

impl From<&bench_mmap::RowFacts> for MmapLine {
    fn from(row: &bench_mmap::RowFacts) -> Self {
        let [cycles, l1_dcache_loads, l1_dcache_load_misses] = counts(row.counters.as_ref());
        Self {
            function: row.function,
            page_size: row.page_size,
            bytes: row.bytes,
            threads: row.threads,
            loops: row.loops,
            gbps_mean: row.gbps_mean,
            gbps_stdev: row.gbps_stdev,
            gbps_min: row.gbps_min,
            gbps_max: row.gbps_max,
            perf_gib_per_second: row.perf_gib_per_second,
            perf_error_percent: row.perf_error_percent,
            cycles,
            l1_dcache_loads,
            l1_dcache_load_misses,
        }
    }
}

/// The rows of `bench mmap`.
pub(crate) fn mmap(to: impl Write, rows: &[bench_mmap::RowFacts]) -> csv::Result<()> {
    write(to, rows.iter().map(MmapLine::from))
}

/// A row of `bench neighbour` without its samples.
#[derive(Serialize)]
struct NeighbourLine {
    working_set: u64,
    method: Option<&'static str>,
    stores: Option<&'static str>,
    runs: usize,
    ns_per_access: f64,
    ns_per_access_stdev: Option<f64>,
    accesses_per_second: f64,
    slowdown_percent: Option<f64>,
    slowdown_percent_stdev: Option<f64>,
    background_gbps: Option<f64>,
    background_gbps_stdev: Option<f64>,
    lost_ms_per_gib: Option<f64>,
    lost_ms_per_gib_stdev: Option<f64>,
    accesses_per_second_stdev: Option<f64>,
    repeated: usize,
    /// Of the working set, on transparent hugepages.
    huge_bytes: u64,
    /// Of a pass on average, which the counters are of, too.
    accesses: u64,
    cycles: Option<u64>,
    l1_dcache_loads: Option<u64>,
    l1_dcache_load_misses: Option<u64>,
}

impl NeighbourLine {
    fn new(row: &bench_neighbour::RowFacts, sets: &[SetFacts]) -> Self {
        let set = sets.iter().find(|set| set.bytes == row.working_set);
        let [cycles, l1_dcache_loads, l1_dcache_load_misses] = counts(row.counters.as_ref());
        let split = |figure: &Option<bench_neighbour::FigureFacts>| match figure {
            Some(figure) => (Some(figure.mean), figure.stdev),
            None => (None, None),
        };
        let (slowdown_percent, slowdown_percent_stdev) = split(&row.slowdown_percent);
        let (background_gbps, background_gbps_stdev) = split(&row.background_gbps);
        let (lost_ms_per_gib, lost_ms_per_gib_stdev) = split(&row.lost_ms_per_gib);
        Self {
            working_set: row.working_set,
            method: row.method,
            stores: row.stores,
            runs: row.runs,
            ns_per_access: row.ns_per_access.mean,
            ns_per_access_stdev: row.ns_per_access.stdev,
            accesses_per_second: row.accesses_per_second.mean,
            slowdown_percent,
            slowdown_percent_stdev,
            background_gbps,
            background_gbps_stdev,
            lost_ms_per_gib,
            lost_ms_per_gib_stdev,
            accesses_per_second_stdev: row.accesses_per_second.stdev,
            repeated: row.repeated,
            huge_bytes: set.map_or(0, |set| set.huge_bytes),
            accesses: row.accesses(),
            cycles,
            l1_dcache_loads,
            l1_dcache_load_misses,
        }
    }
}

/// The rows of `bench neighbour`.
pub(crate) fn neighbour(to: impl Write, report: &NeighbourReport) -> csv::Result<()> {
    let sets = &report.working_sets;
    let lines = report.rows.iter();
    write(to, lines.map(|row| NeighbourLine::new(row, sets)))
}

fn write(to: impl Write, rows: impl Iterator<Item = impl Serialize>) -> csv::Result<()> {
    let mut lines = csv::Writer::from_writer(to);
    for row in rows {
        lines.serialize(row)?;
    }
    lines.flush()?;
    Ok(())
}

/// A row of `bench vm` without its samples. Fields without a value are empty.
#[derive(Serialize)]
struct VmLine {
    way: &'static str,
    peer: Option<&'static str>,
    bytes: u64,
    page_size: u64,
    workers: Option<usize>,
    method: Option<&'static str>,
    runs: usize,
    bw_gbps: f64,
    bw_stdev: Option<f64>,
    diff_percent: f64,
    work: Option<&'static str>,
    work_gbps: Option<f64>,
    work_stdev: Option<f64>,
    speedup: Option<f64>,
    speedup_stdev: Option<f64>,
    speedup_median: Option<f64>,
    creation_ns: f64,
    creation_ns_stdev: Option<f64>,
    creation_ns_min: f64,
    creation_ns_max: f64,
    first_instruction_ns: Option<f64>,
    first_instruction_ns_stdev: Option<f64>,
    cpu_ns: u64,
    cycles: Option<u64>,
    l1_dcache_loads: Option<u64>,
    l1_dcache_load_misses: Option<u64>,
}

impl From<&VmRow> for VmLine {
    fn from(row: &VmRow) -> Self {
        let first = row.first_instruction_ns.as_ref();
        let [cycles, l1_dcache_loads, l1_dcache_load_misses] = counts(row.counters.as_ref());
        Self {
            way: row.way,
            peer: row.peer,
            bytes: row.bytes,
            page_size: row.page_size,
            workers: row.workers,
            method: row.method,
            runs: row.runs,
            bw_gbps: row.bw_gbps,
            bw_stdev: row.bw_stdev,
            diff_percent: row.diff_percent,
            work: row.work,
            work_gbps: row.work_gbps,
            work_stdev: row.work_stdev,
            speedup: row.speedup.map(|ratio| ratio.mean),
            speedup_stdev: row.speedup.and_then(|ratio| ratio.stdev),
            speedup_median: row.speedup.map(|ratio| ratio.median),
            creation_ns: row.creation_ns.mean,
            creation_ns_stdev: row.creation_ns.stdev,
            creation_ns_min: row.creation_ns.min,
            creation_ns_max: row.creation_ns.max,
            first_instruction_ns: first.map(|times| times.mean),
            first_instruction_ns_stdev: first.and_then(|times| times.stdev),
            cpu_ns: row.cpu_ns,
            cycles,
            l1_dcache_loads,
            l1_dcache_load_misses,
        }
    }
}

/// The rows of `bench vm`.
pub(crate) fn vm(to: impl Write, rows: &[VmRow]) -> csv::Result<()> {
    let mut lines = csv::Writer::from_writer(to);
    for row in rows {
        lines.serialize(VmLine::from(row))?;
    }
    lines.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::bench_clear::tests::fixed;
    use crate::output::bench_vm;

    /// By a CPU that does not count all loads.
    fn counted() -> Option<CountsFacts> {
        Some(CountsFacts {
            scope: "user",
            cycles: Some(9000),
            l1_dcache_loads: None,
            l1_dcache_load_misses: Some(30),
        })
    }

    #[test]
    fn fixed_rows_have_their_lines() {
        let mut rows = fixed(&["rep-stosb"]).rows;
        rows.truncate(2);
        rows[1].gbps_stdev = None;
        rows[1].ratio = None;
        rows[0].counters = counted();
        let mut out = Vec::new();
        clear(&mut out, &rows).expect("memory takes it");
        let wanted = "\
method,stores,chunk,threads,page_size,bytes,runs,gbps_mean,gbps_stdev,gbps_min,gbps_max,ratio,ratio_stdev,ratio_median,cycles,l1_dcache_loads,l1_dcache_load_misses
rep-stosb,cached,4096,1,2097152,4294967296,5,9.0,0.25,8.5,9.5,1.0,0.0625,1.0,9000,,30
rep-stosb,cached,1073741824,1,2097152,4294967296,5,10.0,,9.5,10.5,,,,,,
";
        assert_eq!(String::from_utf8(out).expect("UTF-8"), wanted);
    }

    #[test]
    fn fixed_rows_of_mmap_have_their_lines() {
        let mut rows = crate::output::bench_mmap::tests::fixed(2).rows;
        rows[0].perf_gib_per_second = 11.5;
        rows[1].perf_gib_per_second = 12.5;
        rows[1].gbps_stdev = None;
        rows[1].perf_error_percent = None;
        rows[1].counters = counted();
        let mut out = Vec::new();
        mmap(&mut out, &rows).expect("memory takes it");
        let wanted = "\
function,page_size,bytes,threads,loops,gbps_mean,gbps_stdev,gbps_min,gbps_max,perf_gib_per_second,perf_error_percent,cycles,l1_dcache_loads,l1_dcache_load_misses
demand,2097152,4294967296,2,5,12.5,0.125,12.25,12.75,11.5,0.3,,,
populate,2097152,4294967296,2,5,13.25,,13.0,13.5,12.5,,9000,,30
";
        assert_eq!(String::from_utf8(out).expect("UTF-8"), wanted);
    }

    #[test]
    fn fixed_rows_of_neighbour_have_their_lines() {
        let mut report = crate::output::bench_neighbour::tests::fixed();
        report.rows.truncate(2);
        report.rows[1].counters = counted();
        report.rows[1].repeated = 4;
        let mut out = Vec::new();
        neighbour(&mut out, &report).expect("memory takes it");
        let wanted = "\
working_set,method,stores,runs,ns_per_access,ns_per_access_stdev,accesses_per_second,slowdown_percent,slowdown_percent_stdev,background_gbps,background_gbps_stdev,lost_ms_per_gib,lost_ms_per_gib_stdev,accesses_per_second_stdev,repeated,huge_bytes,accesses,cycles,l1_dcache_loads,l1_dcache_load_misses
1048576,,,3,4.0,0.125,250000000.0,,,,,,,1000000.0,0,1048576,512,,,
1048576,rep-stosb,cached,3,4.5,0.125,222222222.2222222,10.0,0.25,12.5,0.25,8.0,0.25,1000000.0,4,1048576,512,9000,,30
";
        assert_eq!(String::from_utf8(out).expect("UTF-8"), wanted);
    }

    #[test]
    fn fixed_machines_have_their_lines() {
        let rows = bench_vm::tests::fixed().rows;
        let mut rows: Vec<VmRow> = [0, 5, 8].map(|n| rows[n].clone()).to_vec();
        rows[0].counters = counted();
        let mut out = Vec::new();
        vm(&mut out, &rows).expect("memory takes it");
        let wanted = "\
way,peer,bytes,page_size,workers,method,runs,bw_gbps,bw_stdev,diff_percent,work,work_gbps,work_stdev,speedup,speedup_stdev,speedup_median,creation_ns,creation_ns_stdev,creation_ns_min,creation_ns_max,first_instruction_ns,first_instruction_ns_stdev,cpu_ns,cycles,l1_dcache_loads,l1_dcache_load_misses
fresh,,1073741824,2097152,1,,2,7.320966981818181,0.4930195616844234,0.0,populate,8.541128145454545,0.5751894886318286,1.0,0.0,1.0,147000000.0,9899494.936611665,140000000.0,154000000.0,157500000.0,10606601.717798213,252000000,9000,,30
recycled-clean,,1073741824,2097152,16,,2,48.80644654545455,3.28679707789615,566.6666666666667,,,,6.666666666666668,0.6349206349206342,6.666666666666667,22050000.0,1484924.2404917497,21000000.0,23100000.0,32550000.0,2192031.0216782973,127050000,,,
prefault,cloud-hypervisor,1073741824,2097152,,,2,10.249353774545455,0.690227386358192,40.000000000000014,,,,1.4000000000000001,0.13333333333333322,1.4,105000000.0,7071067.811865475,100000000.0,110000000.0,,,210000000,,,
";
        assert_eq!(String::from_utf8(out).expect("UTF-8"), wanted);
    }
}
