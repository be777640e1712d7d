//! `cargo xtask lab`: prezero on machines that nobody here has, emulated by QEMU with a kernel of their own.
//!
//! The files are under tests/lab: scenarios, the machines' first process and the scenarios' library.

mod boot;
mod budget;
mod image;
mod kernel;
mod machine;
mod program;
mod report;
mod scenario;
mod schedule;
mod tools;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use prezero_testkit::is_required;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::boot::{Ended, boot};
use self::image::Image;
use self::kernel::Kernel;
use self::machine::MACHINES;
use self::report::{Outcome, Verdict};
use self::scenario::Scenario;
use self::schedule::Boot;
use crate::Failure;
use crate::check::workspace;

/// How many machines run at the same time.
const MACHINES_AT_ONCE: usize = 2;

/// Runs the chosen scenarios; succeeds if some ran and all of them passed.
pub(crate) fn run(args: &[String]) -> Result<ExitCode, Failure> {
    let options = Options::parse(args).map_err(Failure::usage)?;
    let scripts = workspace().join("tests/lab");
    let scenarios = scenario::read_all(&scripts.join("scenarios"))?;
    if options.list {
        list(&scenarios);
        return Ok(ExitCode::SUCCESS);
    }
    let (chosen, pending) =
        scenario::choose(&scenarios, &options.names, options.machine.as_deref())
            .map_err(Failure::usage)?;
    if let Some(missing) = tools::missing() {
        return skip(&missing);
    }
    let dir = target_dir().join("lab");
    let kernel = match Kernel::get(&dir.join("kernel")) {
        Ok(kernel) => kernel,
        Err(failure) => return skip(&failure.text),
    };
    let prezero = program::prezero(&dir.join("cargo"))?;
    let mut tests = Vec::new();
    for select in selections(&chosen, |scenario| &scenario.tests) {
        tests.extend(program::tests(&dir.join("cargo"), select)?);
    }
    for select in selections(&chosen, |scenario| &scenario.programs) {
        tests.extend(program::others(&dir.join("cargo"), select)?);
    }
    let image = Image::of_all(&kernel, &prezero, &tests, &scripts)?;
    let scratch = Scratch::new(&dir)?;
    let guests = match chosen.iter().any(|scenario| scenario.boots_guests) {
        true => Some(Image::of_guests(&kernel, &scripts, &scratch.0)?),
        false => None,
    };
    let lab = Lab {
        kernel: &kernel.image,
        image,
        guests,
        dir: scratch,
        keep_console: options.keep_console,
        interrupted: interruption().map_err(|error| Failure::other(format!("Signals: {error}")))?,
    };
    let mut outcomes = lab.run(&chosen)?;
    for scenario in pending {
        let why = scenario.pending.clone().unwrap_or_default();
        let outcome = Outcome::new(scenario, Verdict::Skipped(why));
        println!("{outcome}");
        outcomes.push(outcome);
    }
    if let Some(cost) = budget::of_guests(&outcomes) {
        println!("{cost}");
    }
    println!("{}", report::summary(&outcomes));
    Ok(match report::is_success(&outcomes) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

#[derive(Debug, Default)]
struct Options {
    names: Vec<String>,
    list: bool,
    machine: Option<String>,
    keep_console: Option<PathBuf>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--list" => options.list = true,
                "--machine" => options.machine = Some(value()?.clone()),
                "--keep-console" => options.keep_console = Some(value()?.into()),
                _ if arg.starts_with('-') => return Err(format!("There is no option {arg}")),
                _ => options.names.push(arg.clone()),
            }
        }
        Ok(options)
    }
}

fn list(scenarios: &[Scenario]) {
    for machine in &MACHINES {
        println!("{}: {}", machine.name, machine.what);
        for scenario in scenarios {
            if scenario.machine.name == machine.name {
                let pending = scenario.pending.as_ref();
                let pending = pending.map_or(String::new(), |why| format!(" (pending: {why})"));
                println!("    {}: {}{pending}", scenario.name, scenario.proves);
            }
        }
    }
}

/// Nothing was tested, which is an error only where the lab is required.
fn skip(why: &str) -> Result<ExitCode, Failure> {
    if is_required("lab") {
        return Err(Failure::other(format!(
            "PREZERO_REQUIRE names lab, but: {why}"
        )));
    }
    eprintln!("skipped: lab: {why}");
    Ok(ExitCode::SUCCESS)
}

/// What the scenarios want of cargo, each once.
fn selections<'a>(
    scenarios: &[&'a Scenario],
    of: impl Fn(&Scenario) -> &[String],
) -> Vec<&'a [String]> {
    let mut wanted: Vec<&[String]> = scenarios.iter().map(|one| of(one)).collect();
    wanted.sort();
    wanted.dedup();
    wanted.retain(|select| !select.is_empty());
    wanted
}

fn target_dir() -> PathBuf {
    let set = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    workspace().join(set.unwrap_or_else(|| "target".into()))
}

/// True from a signal to end on, which then ends the machines instead of this process.
fn interruption() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    Ok(interrupted)
}

/// What all boots have in common.
struct Lab<'a> {
    kernel: &'a Path,
    image: Image,
    /// For boots with scenarios that want it.
    guests: Option<Image>,
    dir: Scratch,
    keep_console: Option<PathBuf>,
    interrupted: Arc<AtomicBool>,
}

impl Lab<'_> {
    /// Boots every machine that has scenarios, and prints what comes of them.
    fn run(&self, scenarios: &[&Scenario]) -> Result<Vec<Outcome>, Failure> {
        let common = self.dir.0.join("initramfs");
        self.image
            .append(&self.dir.0.join("image"), &common)
            .map_err(|error| Failure::other(format!("The initramfs: {error}")))?;
        let boots = schedule::boots(scenarios);
        let boots = Mutex::new(boots);
        let outcomes = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..MACHINES_AT_ONCE {
                scope.spawn(|| {
                    // A function, so that the lock is not held while the machine runs.
                    let next = || locked(&boots).pop();
                    while let Some(next) = next() {
                        let ended = self.boot(&next, &common);
                        let mut outcomes = locked(&outcomes);
                        outcomes.extend(tell(&next.scenarios, &ended));
                    }
                });
            }
        });
        Ok(outcomes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// A boot that cannot be is one that did not finish.
    fn boot(&self, next: &Boot<'_>, common: &Path) -> Ended {
        let dir = self.dir.0.join(&next.name);
        let ended = || -> io::Result<Ended> {
            fs::create_dir_all(&dir)?;
            let initramfs = dir.join("initramfs");
            fs::copy(common, &initramfs)?;
            let guests = next.scenarios.iter().any(|scenario| scenario.boots_guests);
            if let Some(guests) = self.guests.as_ref().filter(|_| guests) {
                guests.append(&dir.join("image"), &initramfs)?;
            }
            Image::of_scenarios(&next.scenarios, workspace())?
                .append(&dir.join("image"), &initramfs)?;
            let (seconds, flag) = (next.longest(), &self.interrupted);
            let ended = boot(next.machine, self.kernel, &initramfs, seconds, &dir, flag)?;
            if let Some(kept) = &self.keep_console {
                fs::create_dir_all(kept)?;
                fs::write(kept.join(&next.name), &ended.console)?;
            }
            Ok(ended)
        };
        ended().unwrap_or_else(|error| Ended {
            console: String::new(),
            results: String::new(),
            how: format!("the machine could not be started: {error}"),
            cpu_seconds: BTreeMap::new(),
        })
    }
}

/// Prints the scenarios of a boot, with the console of those that failed.
fn tell(scenarios: &[&Scenario], ended: &Ended) -> Vec<Outcome> {
    let names: Vec<&str> = scenarios.iter().map(|one| one.name.as_str()).collect();
    let verdicts = report::verdicts(&ended.results, &names, &ended.how);
    let outcomes = scenarios.iter().zip(verdicts);
    let outcomes: Vec<Outcome> = outcomes
        .map(|(scenario, verdict)| Outcome {
            cpu_seconds: ended.cpu_seconds.get(&scenario.name).copied(),
            ..Outcome::new(scenario, verdict)
        })
        .collect();
    let mut shown = None;
    for outcome in &outcomes {
        for why in report::again(&ended.results, &outcome.name) {
            println!("again    {}: {}: {why}", outcome.machine, outcome.name);
        }
        println!("{outcome}");
        if matches!(outcome.verdict, Verdict::Failed(_)) {
            // A machine that died fails many for one reason.
            let console = report::console_of(&ended.console, &outcome.name);
            if shown != Some(console) {
                println!("{}\n", console.trim_end().replace('\r', ""));
            }
            shown = Some(console);
        }
    }
    outcomes
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory of this process, which goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(format!("run-{}", std::process::id()));
        // Of a process that had this number before and was killed.
        let _ = fs::remove_dir_all(&path);
        match fs::create_dir_all(&path) {
            Ok(()) => Ok(Self(path)),
            Err(error) => Err(Failure::other(format!("{}: {error}", path.display()))),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
