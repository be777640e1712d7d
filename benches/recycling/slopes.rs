//! The same machine on fresh pages, on dirty segments and on clean ones, in three sizes: what each GiB costs.
//!
//! On 2 MiB pages, and on as many of 1 GiB as the machine gives. Times are those of prezero's own report: from the start
//! of main to the last slot. KVM's share is its ioctls; what they cost for each GiB depends on how this KVM keeps track
//! of memory.

use prezero_memory::PageSize;
use serde_json::{Value, json};

use crate::Setup;
use crate::figures::{Line, median, ratio};
use crate::ground::Ground;
use crate::peers::Result;
use crate::prezero::{Run, run};

const WAYS: [&str; 3] = ["fresh", "dirty", "clean"];
const GIB: f64 = (1_u64 << 30) as f64;

type Part = (&'static str, fn(&Run) -> f64);

/// What a creation consists of: the first is all of it.
const PARTS: [Part; 6] = [
    ("created", Run::created),
    ("KVM", Run::kvm),
    ("lease", Run::lease),
    ("mapping", Run::mapping),
    ("clear", Run::clear),
    ("the rest", Run::rest),
];

/// All runs with one size, by way.
struct OfSize {
    bytes: u64,
    runs: [Vec<Run>; 3],
}

impl OfSize {
    fn all(&self, way: usize, part: fn(&Run) -> f64) -> Vec<f64> {
        self.runs[way].iter().map(part).collect()
    }
}

pub(crate) fn measure(setup: &Setup) -> Result<Option<Value>> {
    let mut records = Vec::new();
    records.extend(on_pages_of(setup, PageSize::HUGE_2M, setup.size)?);
    // Those need whole free ranges, which a machine may have few of: its largest guest is as large as they allow.
    let mut size = setup.size;
    while setup.measure && size >= PageSize::HUGE_1G.bytes() {
        if let Some(record) = on_pages_of(setup, PageSize::HUGE_1G, size)? {
            records.push(record);
            break;
        }
        size /= 2;
    }
    Ok((!records.is_empty()).then(|| records.into()))
}

/// `size` and its fourth parts, as far as they are whole pages.
fn sizes(page: PageSize, size: u64) -> Vec<u64> {
    let sizes = [size / 16, size / 4, size].into_iter();
    sizes.filter(|size| *size >= page.bytes()).collect()
}

fn on_pages_of(setup: &Setup, page: PageSize, size: u64) -> Result<Option<Value>> {
    let Some(ground) = Ground::take(page, size) else {
        return Ok(None);
    };
    let sizes = sizes(page, size);
    let segment = (1 << 30).min(sizes[0]);
    let of_size = |bytes| OfSize {
        bytes,
        runs: Default::default(),
    };
    let mut all: Vec<OfSize> = sizes.into_iter().map(of_size).collect();
    for round in setup.rounds() {
        for of in &mut all {
            setup.stop.check()?;
            let memory = ground.memory(of.bytes);
            let fresh = run(&memory, None)?;
            let pool = ground.pool(of.bytes, segment)?;
            let clean = run(&memory, Some(&ground.dir()))?;
            ground.stain(&pool)?;
            let dirty = run(&memory, Some(&ground.dir()))?;
            pool.destroy()?;
            if round > 0 {
                let runs = of.runs.iter_mut().zip([fresh, dirty, clean]);
                runs.for_each(|(runs, run)| runs.push(run));
            }
        }
        setup.tell(&format!("slopes on pages of {page}"), round);
    }
    print(setup, page, segment, &all);
    Ok(Some(json!({
        "page_size": page.bytes(),
        "segment": segment,
        "sizes": all.iter().map(record).collect::<Vec<_>>(),
        "ms_per_gib": (all.len() > 1).then(|| lines_json(&all)),
    })))
}

fn record(of: &OfSize) -> Value {
    let ways = WAYS.iter().zip(&of.runs).map(|(way, runs)| {
        let runs: Vec<Value> = runs.iter().map(Run::json).collect();
        json!({ "way": way, "runs": runs })
    });
    json!({ "bytes": of.bytes, "ways": ways.collect::<Vec<_>>() })
}

/// Through the medians of the sizes, in milliseconds and GiB: outliers of single runs do not tilt it.
fn line(all: &[OfSize], way: usize, part: fn(&Run) -> f64) -> Line {
    let points = all.iter().map(|of| {
        let values = of.all(way, part).into_iter();
        (of.bytes as f64 / GIB, median(values))
    });
    Line::through(&points.collect::<Vec<_>>())
}

fn lines_json(all: &[OfSize]) -> Value {
    let ways = WAYS.iter().enumerate().map(|(n, way)| {
        let parts = PARTS.iter().map(|(name, part)| {
            let Line { at_zero, slope } = line(all, n, *part);
            json!({ "part": name, "slope": slope, "at_zero": at_zero })
        });
        json!({ "way": way, "parts": parts.collect::<Vec<_>>() })
    });
    ways.collect()
}

fn print(setup: &Setup, page: PageSize, segment: u64, all: &[OfSize]) {
    let (rounds, mib) = (setup.rounds, segment >> 20);
    println!("Creation on pages of {page}, segments of {mib} MiB, medians of {rounds}, ms");
    let head = PARTS.map(|(name, _)| format!("{name:>9}")).join("");
    println!("    MiB way  {head}  to fresh");
    for of in all {
        for (n, way) in WAYS.iter().enumerate() {
            let parts = PARTS.map(|(_, part)| median(of.all(n, part).into_iter()));
            let parts = parts.map(|ms| format!("{ms:>9.2}")).join("");
            let created = of.all(n, Run::created);
            let ratio = ratio(&created, &of.all(0, Run::created));
            let mib = of.bytes >> 20;
            println!("{mib:>7} {way:5}{parts} {ratio:>9.4}");
        }
    }
    if all.len() > 1 {
        println!("slope, ms for each GiB");
        for (n, way) in WAYS.iter().enumerate() {
            let slopes = PARTS.map(|(_, part)| line(all, n, part).slope);
            let slopes = slopes.map(|ms| format!("{ms:>9.3}")).join("");
            println!("        {way:5}{slopes}");
        }
    }
    if let Some(largest) = all.last() {
        let clear = ratio(&largest.all(0, Run::populate), &largest.all(1, Run::clear));
        let own = |run: &Run| run.created() - run.kvm() - run.mapping();
        let own = median(largest.all(2, own).into_iter());
        println!("clean: {own:.2} ms are neither KVM's ioctls nor mapping (5 at most is the aim)");
        println!(
            "dirty: cleared at {clear:.2} times the rate of populating fresh pages (2.4 is the aim)\n"
        );
    }
}
