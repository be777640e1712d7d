//! What the kernel says about this process's mappings (proc_pid_smaps(5), proc_pid_numa_maps(5)).
#![allow(dead_code, reason = "every test file looks at another part")]

use std::fs;

/// One line of `/proc/self/maps`, and its flags from smaps.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `rw-s` and the like.
    pub(crate) access: String,
    pub(crate) name: String,
    flags: Vec<String>,
}

impl Mapping {
    /// Whether `VmFlags` has the two letters: `dc` not for forks, `dd` not for core dumps, `ht` hugetlb.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }
}

/// The mappings that share a byte with the range, lowest first.
pub(crate) fn mapped(addr: u64, len: u64) -> Vec<Mapping> {
    let mut all = all();
    all.retain(|mapping| mapping.start < addr + len && mapping.end > addr);
    all
}

/// What is left of guest memory in a range: a thread of the test harness may have got its stack there since.
pub(crate) fn left(addr: u64, len: u64) -> Vec<Mapping> {
    let mut all = mapped(addr, len);
    all.retain(|mapping| mapping.has("dc") || mapping.access == "---p" && mapping.has("nr"));
    all
}

/// How many descriptors of memory this process has open; the harness opens and closes others.
pub(crate) fn open_memory_files() -> usize {
    let fds = fs::read_dir("/proc/self/fd").expect("own descriptors");
    let targets = fds.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    targets
        .filter(|to| to.to_string_lossy().contains("prezero-ram"))
        .count()
}

/// Whether every byte of the range is mapped with this access.
pub(crate) fn all_mapped(addr: u64, len: u64, access: &str) -> bool {
    let mut next = addr;
    for mapping in mapped(addr, len) {
        if mapping.start > next || mapping.access != access {
            return false;
        }
        next = mapping.end;
    }
    next >= addr + len
}

fn all() -> Vec<Mapping> {
    let smaps = fs::read_to_string("/proc/self/smaps").expect("smaps is readable");
    let mut all: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        if let Some(mapping) = header(line) {
            all.push(mapping);
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let last = all.last_mut().expect("flags follow their mapping");
            last.flags = flags.split_whitespace().map(str::to_owned).collect();
        }
    }
    all
}

/// `7f0000000000-7f0000200000 rw-s 00000000 00:10 42    /memfd:name (deleted)`
fn header(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        access: words.next()?.to_owned(),
        name: words.skip(3).collect::<Vec<_>>().join(" "),
        flags: Vec::new(),
    })
}

/// The memory policy of the mapping that starts at `addr`; None on a kernel without NUMA.
pub(crate) fn policy_at(addr: u64) -> Option<String> {
    let lines = fs::read_to_string("/proc/self/numa_maps").ok()?;
    let line = lines.lines().find_map(|line| {
        let (start, rest) = line.split_once(' ')?;
        (u64::from_str_radix(start, 16) == Ok(addr)).then_some(rest)
    })?;
    line.split_whitespace().next().map(str::to_owned)
}

/// This process's address space in bytes (`VmSize`).
pub(crate) fn address_space() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("status is readable");
    let size = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
    let kib: u64 = size
        .and_then(|kib| kib.trim().parse().ok())
        .expect("VmSize in kB");
    kib << 10
}
