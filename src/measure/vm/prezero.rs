//! One run of this very program.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use prezero_memory::{Cancel, Class, Method, Origin};
use serde::Deserialize;

use super::child::{Child, limit};
use super::{Pages, Sample, Work};
use crate::failure::{Failure, class_named};

/// What is run: it cannot have been replaced meanwhile.
pub(super) const THIS: &str = "/proc/self/exe";

/// How one machine is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) bytes: u64,
    pub(super) pages: Pages,
    pub(super) workers: usize,
    /// The pool with all of its memory; fresh pages without one.
    pub(super) pool: Option<&'a Path>,
    /// What all of its memory has to be.
    pub(super) origin: Origin,
    /// With what it is cleared.
    pub(super) clear: Option<Clear>,
}

/// How dirty memory is cleared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clear {
    pub(super) method: Method,
    /// How much one string instruction or loop covers, in bytes.
    pub(super) chunk: Option<u64>,
}

impl Run<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(THIS);
        command.args(["run", "--prealloc", "--json"]);
        let (bytes, page) = (self.bytes, self.pages.page.bytes());
        let mut memory = format!("size={bytes},hugepages=on,hugepage_size={page}");
        if let Some(node) = self.pages.node {
            memory.push_str(&format!(",host_numa_node={node}"));
        }
        command.args(["--memory", &memory]);
        command.args(["--threads", &self.workers.to_string()]);
        command.arg("--pool");
        command.arg(self.pool.unwrap_or(Path::new("none")));
        if let Some(clear) = self.clear {
            command.args(["--method", clear.method.name()]);
            if let Some(chunk) = clear.chunk {
                command.args(["--chunk", &chunk.to_string()]);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}

/// Makes the machine, lets its guest run, and waits for the end.
pub(super) fn run(run: &Run<'_>, cancel: &Cancel) -> Result<Sample, Failure> {
    let mut child = Child::start("prezero run", &mut run.command(), cancel, limit(run.bytes))?;
    let output = child.process().and_then(|process| process.stdout.take());
    let output = output.ok_or_else(|| child.failed("it has no output"))?;
    let (document, _) = child.read_until(output, |_| false)?;
    let started = child.started();
    let (ended, words) = child.wait()?;
    let report: Report = serde_json::from_slice(&document).map_err(|error| Failure {
        class: Class::Internal,
        message: format!(
            "prezero run ended with {} and no document ({error}): {words}",
            ended.status
        ),
        fix: None,
    })?;
    if let Some(error) = report.error {
        return Err(Failure {
            class: class_named(&error.class),
            message: error.message,
            fix: error.fix,
        });
    }
    let sample = report.sample(run, started, ended.cpu);
    sample.map_err(|what| Failure {
        class: Class::Internal,
        message: format!("prezero run did not make the machine that this row is about: {what}"),
        fix: None,
    })
}

/// What is read of schema prezero/run/1.
#[derive(Debug, Deserialize)]
struct Report {
    regions: Vec<Region>,
    phases: Vec<Phase>,
    workers: Vec<Worker>,
    started_ns: Option<u64>,
    creation_ns: Option<u64>,
    first_instruction_ns: Option<u64>,
    warnings: Vec<String>,
    error: Option<Error>,
}

#[derive(Debug, Deserialize)]
struct Region {
    len: u64,
    page_size: u64,
    origin: String,
}

#[derive(Debug, Deserialize)]
struct Phase {
    name: String,
    ns: u64,
    bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Worker {
    pinned: bool,
}

#[derive(Debug, Deserialize)]
struct Error {
    class: String,
    message: String,
    fix: Option<String>,
}

impl Report {
    /// Its figures on this process's clock, if the machine is the one asked for.
    fn sample(&self, run: &Run<'_>, started: Duration, cpu: Duration) -> Result<Sample, String> {
        let all: u64 = self.regions.iter().map(|region| region.len).sum();
        if all != run.bytes {
            return Err(format!("it has {all} bytes, not {}", run.bytes));
        }
        let (page, origin) = (run.pages.page.bytes(), run.origin.name());
        let odd = |region: &&Region| region.page_size != page || region.origin != origin;
        if let Some(odd) = self.regions.iter().find(odd) {
            let Region {
                page_size, origin, ..
            } = odd;
            return Err(format!("it has {origin} memory on pages of {page_size}"));
        }
        let missing = |what: &str| format!("its report has no {what}");
        let times = [self.started_ns, self.creation_ns, self.first_instruction_ns];
        let [main, creation, first] = times.map(|ns| ns.map(Duration::from_nanos));
        let main = main.and_then(|main| main.checked_sub(started));
        let main = main.ok_or_else(|| missing("start after its exec"))?;
        let creation = creation.ok_or_else(|| missing("creation"))?;
        let phase = match run.origin {
            Origin::Fresh => Some("populate"),
            Origin::Clean => None,
            _ => Some("clear"),
        };
        let work = match phase {
            None => None,
            Some(name) => {
                let phase = self.phases.iter().find(|phase| phase.name == name);
                let phase = phase.filter(|phase| phase.bytes == run.bytes);
                Some(phase.ok_or_else(|| missing(name))?)
            }
        };
        Ok(Sample {
            creation: main + creation,
            first_instruction: first.map(|first| main + first),
            cpu,
            work: work.map(|phase| Work {
                bytes: phase.bytes,
                time: Duration::from_nanos(phase.ns),
            }),
            workers: Some(self.workers.len()),
            taken: None,
            loose: self.workers.iter().filter(|worker| !worker.pinned).count(),
            warnings: self.warnings.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use prezero_host::PageSize;

    use super::*;

    #[test]
    fn memory_is_bound_to_the_node_of_all_rows() {
        let memory = |node| {
            let pages = Pages { node, ..RUN.pages };
            let command = Run { pages, ..RUN }.command();
            let args: Vec<String> = command
                .get_args()
                .map(|arg| arg.to_string_lossy().into_owned())
                .collect();
            args[4].clone()
        };
        let wanted = "size=8388608,hugepages=on,hugepage_size=2097152";
        assert_eq!(memory(None), wanted);
        assert_eq!(memory(Some(1)), format!("{wanted},host_numa_node=1"));
    }

    const RUN: Run<'_> = Run {
        bytes: 8 << 20,
        pages: Pages {
            page: PageSize::HUGE_2M,
            node: None,
        },
        workers: 2,
        pool: None,
        origin: Origin::Fresh,
        clear: None,
    };

    fn report(origin: &str) -> Report {
        let text = format!(
            r#"{{ "schema": "prezero/run/1",
                "regions": [{{ "gpa": 0, "len": 8388608, "page_size": 2097152, "origin": "{origin}" }}],
                "phases": [{{ "name": "plan", "ns": 5, "bytes": 0 }},
                           {{ "name": "populate", "ns": 4000, "bytes": 8388608 }},
                           {{ "name": "clear", "ns": 2000, "bytes": 8388608 }}],
                "workers": [{{ "node": 0, "pinned": true }}, {{ "node": 0, "pinned": false }}],
                "warnings": ["of the machine"],
                "started_ns": 10000, "creation_ns": 7000, "first_instruction_ns": 9000 }}"#
        );
        serde_json::from_str(&text).expect("a report")
    }

    #[test]
    fn times_since_main_are_moved_to_the_exec() {
        let (started, cpu) = (Duration::from_nanos(8500), Duration::from_nanos(77));
        let sample = report("fresh")
            .sample(&RUN, started, cpu)
            .expect("a sample");
        assert_eq!(sample.creation, Duration::from_nanos(1500 + 7000));
        assert_eq!(
            sample.first_instruction,
            Some(Duration::from_nanos(1500 + 9000))
        );
        assert_eq!((sample.cpu, sample.workers), (cpu, Some(2)));
        assert_eq!(
            (sample.loose, sample.warnings),
            (1, vec!["of the machine".to_owned()])
        );
        let work = sample.work.expect("the kernel cleared");
        assert_eq!(
            (work.bytes, work.time),
            (8 << 20, Duration::from_nanos(4000))
        );
    }

    #[test]
    fn each_origin_has_its_own_work() {
        let of = |origin: Origin, report: &Report| {
            let run = Run { origin, ..RUN };
            report.sample(&run, Duration::ZERO, Duration::ZERO)
        };
        let dirty = of(Origin::Dirty, &report("dirty")).expect("a sample");
        assert_eq!(
            dirty.work.map(|work| work.time),
            Some(Duration::from_nanos(2000))
        );
        let clean = of(Origin::Clean, &report("clean")).expect("a sample");
        assert!(clean.work.is_none());
    }

    #[test]
    fn a_machine_of_another_kind_is_no_sample() {
        let refused = |change: &dyn Fn(&mut Report)| {
            let mut report = report("fresh");
            change(&mut report);
            let sample = report.sample(&RUN, Duration::ZERO, Duration::ZERO);
            sample.expect_err("not what was asked for")
        };
        assert!(refused(&|report| report.regions[0].origin = "clean".to_owned()).contains("clean"));
        assert!(refused(&|report| report.regions[0].page_size = 4096).contains("4096"));
        assert!(refused(&|report| report.regions[0].len = 1).contains("1 bytes"));
        assert!(refused(&|report| report.phases[1].bytes = 1).contains("populate"));
        assert!(refused(&|report| report.started_ns = None).contains("exec"));
        let early = report("fresh").sample(&RUN, Duration::from_secs(1), Duration::ZERO);
        assert!(early.expect_err("before its parent").contains("exec"));
    }
}
