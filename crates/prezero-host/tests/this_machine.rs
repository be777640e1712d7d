//! `Host::probe()` on the machine that runs the tests agrees with other sources.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use prezero_host::Host;

fn output(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A figure of `/proc/meminfo`, without its unit.
fn meminfo(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn nothing_on_this_machine_is_a_problem() {
    assert_eq!(Host::probe().problems, []);
}

#[test]
fn allowed_cpus_and_quota_give_the_standard_library_s_parallelism() {
    let host = Host::probe();
    let available = thread::available_parallelism().unwrap().get();
    match &host.cpu_quota {
        None => assert_eq!(host.allowed_cpus.len(), available),
        // The standard library rounds down, and looks at fewer cgroups.
        Some(_) => assert!(host.allowed_cpus.len() >= available),
    }
    let online = host.nodes.iter().map(|node| node.cpus.len()).sum::<usize>();
    let getconf = output("getconf", &["_NPROCESSORS_ONLN"]);
    assert_eq!(getconf.map_or(online, |cpus| cpus.parse().unwrap()), online);
}

#[test]
fn the_kernel_release_is_uname_s() {
    assert_eq!(Some(Host::probe().kernel.release), output("uname", &["-r"]));
}

/// Other tests may change the pools at any time, so only a reading between two equal ones counts.
#[test]
fn the_default_pool_is_the_one_in_meminfo() {
    for _ in 0..100 {
        let figures = || ["HugePages_Total:", "HugePages_Free:", "HugePages_Rsvd:"].map(meminfo);
        let before = figures();
        let host = Host::probe();
        if figures() != before {
            thread::sleep(Duration::from_millis(20));
            continue;
        }
        let size = host.default_hugepage_size.unwrap();
        assert_eq!(size.bytes(), meminfo("Hugepagesize:") * 1024);
        let pool = host.pool(size).unwrap();
        assert_eq!([pool.total, pool.free, pool.reserved], before);
        let of_nodes = host
            .nodes
            .iter()
            .map(|node| node.pool(size).unwrap().total)
            .sum::<u64>();
        assert_eq!(of_nodes, pool.total);
        return;
    }
    panic!("The hugepage pool changed 100 times in a row");
}

/// The first thread keeps its mask, so that a reader of `/proc/self` would not see the change.
#[test]
fn the_mask_is_the_calling_thread_s() {
    let all = Host::probe().allowed_cpus;
    let last = all.iter().last().unwrap();
    if all.len() < 2 {
        eprintln!("skipped: a second CPU");
        return;
    }
    let of_thread = thread::spawn(move || {
        let link = fs::read_link("/proc/thread-self").unwrap();
        let id = link.file_name().unwrap().to_str().unwrap().to_owned();
        output("taskset", &["-p", "-c", &last.to_string(), &id]).map(|_| Host::probe().allowed_cpus)
    });
    match of_thread.join().unwrap() {
        Some(cpus) => assert_eq!(cpus, [last].into_iter().collect()),
        None => eprintln!("skipped: taskset"),
    }
}

/// Milliseconds are visible in the creation time of a small VM. The best of several tries counts
/// because tests run side by side.
#[test]
fn probing_takes_less_than_5_ms() {
    let time = |_| {
        let start = Instant::now();
        assert!(!Host::probe().nodes.is_empty());
        start.elapsed()
    };
    let best = (0..20).map(time).min().unwrap();
    assert!(best < Duration::from_millis(5), "{best:?}");
}
