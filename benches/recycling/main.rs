//! What a pool of recycled hugepages saves: the same machine on fresh pages, on dirty segments and on clean ones.
//!
//!     cargo bench --bench recycling -- [--size 4G] [--segment 1G] [--rounds 5] [--record FILE.json]
//!
//! Each round makes a pool, so that the hugepages of one guest are enough. The memory of dirty segments holds `0xA5`
//! before the run, because some CPUs clear what is zero faster. Times are those of prezero's own report: from the start
//! of main to the last slot. Without `--bench`, as under `cargo test`, one small round shows that everything works.

use std::env;
use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use prezero_memory::pool::{Pool, PoolRequest, TakeRequest};
use prezero_memory::{
    Control, GuestRam, Host, PageBytes, PageSize, Prealloc, Recycled, Request, Workers, parse_size,
    plan,
};
use prezero_testkit::{Hugepages, PrivateMount, require_kvm};
use serde_json::{Value, json};

const PAGE: u64 = 2 << 20;
const WAYS: [&str; 3] = ["fresh", "dirty", "clean"];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Options {
    measure: bool,
    size: u64,
    segment: u64,
    rounds: usize,
    record: Option<String>,
}

fn main() -> ExitCode {
    // Asked by test runners that look for tests; there are none by name here.
    if env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    match options().and_then(|options| measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("recycling: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options> {
    let measure = env::args().any(|argument| argument == "--bench");
    let mut options = match measure {
        true => Options {
            measure,
            size: 4 << 30,
            segment: 1 << 30,
            rounds: 5,
            record: None,
        },
        false => Options {
            measure,
            size: 64 << 20,
            segment: 16 << 20,
            rounds: 1,
            record: None,
        },
    };
    let mut args = env::args().skip(1);
    while let Some(argument) = args.next() {
        let mut value = || args.next().ok_or(format!("{argument} wants a value"));
        match argument.as_str() {
            "--size" => options.size = parse_size(&value()?)?,
            "--segment" => options.segment = parse_size(&value()?)?,
            "--rounds" => options.rounds = value()?.parse()?,
            "--record" => options.record = Some(value()?),
            _ => {}
        }
    }
    Ok(options)
}

/// The reports of every run, by way.
fn measure(options: &Options) -> Result<()> {
    if !require_kvm() {
        return Ok(());
    }
    let Some(_pages) = Hugepages::take(PAGE, options.size / PAGE) else {
        return Ok(());
    };
    let Some(mount) = PrivateMount::hugetlbfs(PAGE) else {
        return Ok(());
    };
    let dir = mount.path().join("pool");
    let host = Host::probe();
    let mut reports: [Vec<Value>; 3] = Default::default();
    // The first round is not counted: it touches every page for the host below a virtual machine.
    for round in 0..=options.rounds {
        let fresh = run(options.size, Path::new("none"))?;
        let (pool, _) = Pool::create(
            &dir,
            &PoolRequest {
                bytes: options.size,
                segment: PageBytes::new(options.segment, PageSize::HUGE_2M)
                    .ok_or("segments are whole pages")?,
                nodes: Vec::new(),
                exchange_only: false,
            },
            &host,
            None,
            &Control::default(),
        )?;
        let clean = run(options.size, &dir)?;
        stain(&pool, &host, options.size)?;
        let dirty = run(options.size, &dir)?;
        pool.destroy()?;
        if round > 0 || !options.measure {
            for (way, report) in reports.iter_mut().zip([fresh, dirty, clean]) {
                way.push(report);
            }
        }
        eprintln!("recycling: round {round} of {}", options.rounds);
    }
    print(&reports, options);
    if let Some(path) = &options.record {
        let rows = WAYS.iter().zip(&reports).map(|(way, reports)| {
            let figures = reports.iter();
            let figures = figures.map(|report| {
                json!({ "creation_ns": report["creation_ns"], "phases": report["phases"] })
            });
            json!({ "way": way, "runs": figures.collect::<Vec<_>>() })
        });
        let record = json!({
            "schema": "prezero/recycling/1",
            "host": reports[0].first().map(|report| &report["host"]),
            "bytes": options.size,
            "segment": options.segment,
            "rows": rows.collect::<Vec<_>>(),
        });
        std::fs::write(path, format!("{record:#}\n"))?;
    }
    Ok(())
}

/// Fills every segment of the pool with a byte that is not zero.
fn stain(pool: &Pool, host: &Host, size: u64) -> Result<()> {
    let leases = pool.take(&TakeRequest {
        max_bytes: size,
        ..TakeRequest::default()
    })?;
    let recycled = leases.iter().map(|lease| Recycled {
        len: lease.len(),
        node: lease.node(),
        origin: lease.origin(),
    });
    let request = Request {
        zones: vec![format!("size={size},hugepages=on").parse()?],
        prealloc: Prealloc::Eager,
        recycled: recycled.collect(),
        ..Request::default()
    };
    let plan = plan(host, &request)?;
    let workers = Workers::start(plan.workers())?;
    let control = Control::default();
    let ram = GuestRam::reserve_with(&plan, leases.into_iter().map(Some).collect())?;
    let (ram, _) = ram
        .populate(&workers, &control)
        .map_err(|failed| failed.error)?;
    drop(
        ram.stain(&workers, 0xa5, &control)
            .map_err(|failed| failed.error)?,
    );
    Ok(())
}

fn run(size: u64, pool: &Path) -> Result<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_prezero"))
        .args(["run", "--memory", &format!("size={size},hugepages=on")])
        .args(["--prealloc", "--json", "--pool"])
        .arg(pool)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout)?),
        false => Err(format!("prezero run: {}", output.status).into()),
    }
}

fn phase(report: &Value, name: &str) -> f64 {
    let phases = report["phases"].as_array().into_iter().flatten();
    let of_name = phases.filter(|phase| phase["name"] == name);
    of_name
        .filter_map(|phase| phase["ns"].as_f64())
        .sum::<f64>()
        / 1e6
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print(reports: &[Vec<Value>; 3], options: &Options) {
    let gib = options.size as f64 / f64::from(1 << 30);
    println!(
        "{gib} GiB on 2 MiB pages, medians of {}, ms",
        options.rounds
    );
    println!("way     created   to fresh   populate   clear      KVM    the rest");
    let created = |report: &Value| report["creation_ns"].as_f64().unwrap_or(f64::NAN) / 1e6;
    for (way, of_way) in WAYS.iter().zip(reports) {
        let all = |figure: &dyn Fn(&Value) -> f64| median(of_way.iter().map(figure));
        // Runs of one round are compared with each other.
        let pairs = of_way.iter().zip(&reports[0]);
        let ratio = median(pairs.map(|(report, fresh)| created(report) / created(fresh)));
        let kvm = |report: &Value| phase(report, "kvm") + phase(report, "register");
        let clear = |report: &Value| phase(report, "calibrate") + phase(report, "clear");
        let rest = |report: &Value| {
            created(report) - kvm(report) - clear(report) - phase(report, "populate")
        };
        println!(
            "{way:5} {:>9.1} {ratio:>10.4} {:>10.1} {:>7.1} {:>8.1} {:>11.1}",
            all(&created),
            all(&|report| phase(report, "populate")),
            all(&clear),
            all(&kvm),
            all(&rest),
        );
    }
    let (fresh, dirty) = (&reports[0], &reports[1]);
    let pairs = fresh.iter().zip(dirty);
    let ratio = median(pairs.map(|(fresh, dirty)| {
        phase(fresh, "populate") / (phase(dirty, "calibrate") + phase(dirty, "clear"))
    }));
    println!("the clear of dirty segments has {ratio:.2} times the GB/s of populating fresh pages");
}
