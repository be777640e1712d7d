//! What this host's own limits and leftovers come to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use prezero_testkit::{MachineLock, skip};

use crate::command::{error_of, finish};
use crate::contract::{doctor, named, one};

#[test]
fn a_file_size_limit_is_a_warning_and_for_hugepages_on_a_shortage() {
    let limited = |args: &str| {
        let mut command = Command::new("bash");
        let script = format!("ulimit -f 1024; exec \"$0\" doctor --json {args}");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_prezero")]);
        finish(command)
    };
    let report = limited("").json();
    let (level, message, fix) = one(&report, "ulimit");
    assert_eq!((level, fix), ("warning", "ulimit -f unlimited"));
    assert!(message.contains("1 MiB"), "{message}");
    let ran = limited("--memory 64M,hugepages=on,hugepage_size=2M").exits_with(3);
    let report = ran.json();
    assert_eq!(error_of(&report).0, "shortage");
}

#[test]
fn cpus_that_may_not_be_used_are_not_counted() {
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let allowed = allowed.expect("every kernel has it").trim();
    let first: String = allowed.chars().take_while(char::is_ascii_digit).collect();
    let mut command = Command::new("taskset");
    command.args([
        "--cpu-list",
        &first,
        env!("CARGO_BIN_EXE_prezero"),
        "doctor",
        "--json",
    ]);
    let report = finish(command).json();
    let cpus = named(&report, "cpus");
    assert!(cpus[0].1.starts_with("1 of "), "{cpus:?}");
    assert!(cpus[0].1.ends_with(&format!("({first})")), "{cpus:?}");
}

/// A journal of a process that is no more.
struct Planted {
    journal: PathBuf,
    created: bool,
}

impl Planted {
    const DIR: &str = "/run/prezero";

    fn plant(text: &str) -> std::io::Result<Self> {
        let created = fs::create_dir(Self::DIR).is_ok();
        // Above every process's number.
        let journal = Path::new(Self::DIR).join("growth-4294967295-0");
        let planted = Self { journal, created };
        fs::write(&planted.journal, text)?;
        Ok(planted)
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.journal);
        if self.created {
            // Somebody else may have used it meanwhile.
            let _ = fs::remove_dir(Self::DIR);
        }
    }
}

#[test]
fn pages_of_a_killed_reserve_are_shown_with_the_commands_that_give_them_back() {
    // Nobody else may take the journal for one of his.
    let _lock = MachineLock::acquire();
    let text = "prezero growth 1\nintend 2097152 any +14 from 0\ndone 2097152 0=+14\n";
    let Ok(planted) = Planted::plant(text) else {
        return skip("hugepages", "only root can write to /run/prezero");
    };
    let ran = doctor("--json");
    let shown = doctor("").stdout;
    let report = ran.json();
    let found = named(&report, "reserved");
    let found = found.iter().find(|found| found.1.contains("4294967295"));
    let (level, message, fix) = found.unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(*level, "warning");
    assert!(message.contains("14 pages of 2 MiB on node 0"), "{message}");
    assert!(
        fix.starts_with("sudo flock /run/prezero/growth.lock"),
        "{fix}"
    );
    assert!(fix.ends_with(" /run/prezero/growth-4294967295-0"), "{fix}");
    assert!(shown.contains(*fix), "{shown}");
    drop(planted);
    let report = doctor("--json").json();
    let found = named(&report, "reserved");
    assert!(
        !found.iter().any(|found| found.1.contains("4294967295")),
        "{report:#}"
    );
}
