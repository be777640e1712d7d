//! What the scenarios cost, and what those with Linux guests may cost together.
//!
//! How long a scenario takes inside its machine depends on what else the host does. The CPU time of QEMU hardly does, so
//! that is what is added up. It is no reason to fail: two threads that share a core, or a slower CPU, make half as much again.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::report::Outcome;

/// CPU time that scenarios with Linux guests may take together, in seconds.
const GUESTS_LIMIT: f64 = 240.0;

/// Of the times in /proc/PID/stat, a second (USER_HZ).
const TICKS: f64 = 100.0;

/// Follows one machine: the CPU time that passes between the lines that say that a scenario begins and ends. What did
/// not count and was run again costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    stat: PathBuf,
    /// As last read: a process that has ended has none.
    now: f64,
    lines: usize,
    begun: f64,
    spent: BTreeMap<String, f64>,
}

impl Meter {
    pub(crate) fn new(pid: u32) -> Self {
        Self {
            stat: format!("/proc/{pid}/stat").into(),
            ..Self::default()
        }
    }

    /// To be called often, with what the machine has reported so far: how many lines that are.
    pub(crate) fn look(&mut self, results: &str) -> usize {
        let stat = fs::read_to_string(&self.stat);
        self.now = stat
            .ok()
            .and_then(|stat| cpu_seconds(&stat))
            .unwrap_or(self.now);
        let whole = results
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        for line in whole.skip(self.lines) {
            self.lines += 1;
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("begin"), _) => self.begun = self.now,
                (Some("pass" | "fail"), Some(name)) => {
                    self.spent.insert(name.to_owned(), self.now - self.begun);
                }
                _ => {}
            }
        }
        self.lines
    }

    /// Seconds by scenario.
    pub(crate) fn spent(self) -> BTreeMap<String, f64> {
        self.spent
    }
}

/// User and system time (proc(5): fields 14 and 15; the second may have anything in its parentheses).
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(f64::from(ticks()?) / TICKS + f64::from(ticks()?) / TICKS)
}

/// What those with Linux guests took together, if there are any, and whether that is too much.
pub(crate) fn of_guests(outcomes: &[Outcome]) -> Option<String> {
    let guests = outcomes.iter().filter(|outcome| outcome.boots_guests);
    let spent: Vec<f64> = guests.filter_map(|outcome| outcome.cpu_seconds).collect();
    (!spent.is_empty()).then(|| verdict(spent.iter().sum()))
}

fn verdict(spent: f64) -> String {
    let more = match spent > GUESTS_LIMIT {
        true => ", which is too much: let scenarios share boots, or boot fewer guests",
        false => "",
    };
    format!(
        "scenarios with Linux guests took {spent:.0} s of CPU time, of {GUESTS_LIMIT:.0} s{more}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_that_of_user_and_system() {
        let stat = "7 (a) b) S 1 1 1 0 -1 4194560 100 0 0 0 1250 250 9 9 20 0 1 0";
        assert_eq!(cpu_seconds(stat), Some(15.0));
        assert_eq!(cpu_seconds("7 (a) S 1"), None);
    }

    #[test]
    fn time_between_the_lines_is_the_scenarios() {
        let mut meter = Meter::default();
        let mut at = |seconds: f64, results: &str| {
            meter.now = seconds;
            meter.look(results);
        };
        at(1.0, "begin a\n");
        at(4.0, "begin a\nagain a why\nbegin a\npass a");
        at(6.0, "begin a\nagain a why\nbegin a\npass a 9\n");
        at(7.0, "begin a\nagain a why\nbegin a\npass a 9\nbegin b\n");
        at(
            9.0,
            "begin a\nagain a why\nbegin a\npass a 9\nbegin b\nfail b why\nend 2\n",
        );
        let spent = BTreeMap::from([("a".to_owned(), 2.0), ("b".to_owned(), 2.0)]);
        assert_eq!(meter.spent(), spent);
    }

    #[test]
    fn more_than_the_limit_is_said() {
        assert!(!verdict(240.0).contains("too much"));
        assert!(verdict(241.0).contains("too much"));
    }

    #[test]
    fn this_process_takes_time() {
        let mut meter = Meter::new(std::process::id());
        meter.look("begin x\n");
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 50 {}
        meter.look("begin x\npass x 0.1\n");
        assert!(meter.spent()["x"] > 0.0);
    }
}
