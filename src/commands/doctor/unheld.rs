//! Hugepages that are used, though no process, descriptor or file holds them: some kernels lose pages.
//!
//! The search ends with the first holder it finds, or when its time is over, and every doubt counts
//! as one: what is suspected is worth a reboot.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::iter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use prezero_host::{Host, PageSize};

use crate::report::doctor::Finding;

const NAME: &str = "held";
/// Much longer than it takes on a machine with thousands of processes.
const PATIENCE: Duration = Duration::from_millis(400);
/// What is suspected is worth a reboot: looked for again before it is said.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// The first PID and user namespaces (`include/linux/proc_ns.h` of the kernel): in others, holders may
/// be out of sight.
const FIRST_NAMESPACES: [(&str, &str); 2] = [
    ("/proc/self/ns/pid", "pid:[4026531836]"),
    ("/proc/self/ns/user", "user:[4026531837]"),
];

pub(super) fn check(host: &Host) -> Finding {
    let before = used(host);
    if before.is_empty() {
        return Finding::ok(NAME, "No hugepage is in use");
    }
    let sees_all = is_root()
        && FIRST_NAMESPACES
            .iter()
            .all(|(path, first)| is_link(path, first));
    if !sees_all {
        return Finding::ok(
            NAME,
            format!(
                "{} in use; by whom, only root outside containers can see",
                list(&before)
            ),
        );
    }
    let mut lost = before;
    // Pages can go from a process that ends to one that was not there yet when it was looked for.
    for look in 0..LOOKS {
        if look > 0 {
            thread::sleep(BETWEEN_LOOKS);
        }
        let mut search = Search::new(host);
        if let Some(holder) = search.holder() {
            return Finding::ok(NAME, format!("{} in use, {holder}", list(&lost)));
        }
        if search.is_late() {
            return Finding::ok(
                NAME,
                format!("{} in use; nobody was found in {PATIENCE:?}", list(&lost)),
            );
        }
        // A process that was just ending has given its pages back by now.
        let now = used(&Host::probe());
        lost.retain_mut(|(size, pages)| {
            let still = now.iter().find(|(other, _)| other == size);
            *pages = still.map_or(0, |(_, still)| (*pages).min(*still));
            *pages > 0
        });
        if lost.is_empty() {
            return Finding::ok(NAME, "No hugepage is in use any more");
        }
    }
    Finding::warning(
        NAME,
        format!(
            "{} used, but nobody holds them: kernel leak suspected",
            list(&lost)
        ),
        "sudo dmesg | grep -i huge; only a reboot brings lost pages back: sudo reboot",
    )
}

fn used(host: &Host) -> Vec<(PageSize, u64)> {
    let pools = host.pools.iter();
    pools
        .map(|pool| (pool.page_size, pool.total.saturating_sub(pool.free)))
        .filter(|(_, pages)| *pages > 0)
        .collect()
}

fn list(pages: &[(PageSize, u64)]) -> String {
    let sizes: Vec<String> = pages
        .iter()
        .map(|(size, pages)| format!("{pages} pages of {size}"))
        .collect();
    sizes.join(", ")
}

/// /proc/self belongs to the effective user.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

fn is_link(path: &str, to: &str) -> bool {
    fs::read_link(path).is_ok_and(|target| target == Path::new(to))
}

struct Search {
    sizes: Vec<u64>,
    end: Instant,
}

impl Search {
    fn new(host: &Host) -> Self {
        Self {
            sizes: host
                .pools
                .iter()
                .map(|pool| pool.page_size.bytes())
                .collect(),
            end: Instant::now() + PATIENCE,
        }
    }

    fn is_late(&self) -> bool {
        Instant::now() > self.end
    }

    /// Who holds hugepages: the cheap places first.
    fn holder(&mut self) -> Option<String> {
        let pids = pids();
        self.mapped(&pids)
            .or_else(|| self.shared_segment())
            .or_else(|| self.file(&pids))
            .or_else(|| self.descriptor(&pids))
    }

    /// `HugetlbPages` of proc_pid_status(5) is a counter: unlike smaps it takes no walk.
    fn mapped(&self, pids: &[OsString]) -> Option<String> {
        pids.iter().take_while(|_| !self.is_late()).find_map(|pid| {
            let status = fs::read_to_string(Path::new("/proc").join(pid).join("status")).ok()?;
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("HugetlbPages:"))?;
            let figure = line.split_whitespace().next()?;
            (figure != "0").then(|| format!("by process {}", pid.display()))
        })
    }

    /// A System V segment needs no process.
    fn shared_segment(&self) -> Option<String> {
        let table = fs::read_to_string("/proc/sysvipc/shm").ok()?;
        let id = segment_of(&table, *self.sizes.iter().min()?)?;
        Some(format!("perhaps by shared memory segment {id} (ipcs -m)"))
    }

    /// Files on hugetlbfs mounts, in every mount namespace that has a process.
    fn file(&self, pids: &[OsString]) -> Option<String> {
        let mut seen = BTreeSet::new();
        // What this process sees itself is named as its user would type it.
        let own = OsString::from("self");
        let all = iter::once(&own).chain(pids);
        for pid in all.take_while(|_| !self.is_late()) {
            let process = Path::new("/proc").join(pid);
            let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else {
                continue;
            };
            if !seen.insert(namespace) {
                continue;
            }
            let mountinfo = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
            for point in mountinfo.lines().filter_map(hugetlbfs_point) {
                // The kernel writes blanks in paths as \040; a path that is not found is a doubt.
                let dir = match *pid == own {
                    true => PathBuf::from(point),
                    false => process.join("root").join(point.trim_start_matches('/')),
                };
                match point.contains('\\') {
                    true => return Some(format!("perhaps in {point}")),
                    false => {
                        if let Some(file) = self.file_below(dir) {
                            return Some(format!("in {}", file.display()));
                        }
                    }
                }
            }
        }
        None
    }

    fn file_below(&self, dir: PathBuf) -> Option<PathBuf> {
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).ok()?.flatten() {
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                if metadata.is_dir() {
                    dirs.push(entry.path());
                } else if metadata.blocks() > 0 || self.is_late() {
                    return Some(entry.path());
                }
            }
        }
        None
    }

    /// Descriptors of files without a name: memfds, and files that were removed. Their `st_blksize` is
    /// the page size. Others are not asked, because a dead network filesystem never answers.
    fn descriptor(&self, pids: &[OsString]) -> Option<String> {
        for pid in pids.iter().take_while(|_| !self.is_late()) {
            let fds = fs::read_dir(Path::new("/proc").join(pid).join("fd"));
            for fd in fds.into_iter().flatten().flatten() {
                let target = fs::read_link(fd.path()).unwrap_or_default();
                if !target.to_string_lossy().ends_with(" (deleted)") {
                    continue;
                }
                let holds = fs::metadata(fd.path())
                    .is_ok_and(|file| self.sizes.contains(&file.blksize()) && file.blocks() > 0);
                if holds {
                    return Some(format!("by a descriptor of process {}", pid.display()));
                }
            }
        }
        None
    }
}

fn pids() -> Vec<OsString> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names
        .filter(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .collect()
}

/// The mount point of a line of proc_pid_mountinfo(5) that is about hugetlbfs.
fn hugetlbfs_point(line: &str) -> Option<&str> {
    let (mount, filesystem) = line.split_once(" - ")?;
    filesystem.starts_with("hugetlbfs ").then_some(())?;
    mount.split(' ').nth(4)
}

/// The id of a segment with at least so many bytes in memory (proc_sysvipc(5)): hugepages count in `rss`,
/// and nothing says whether a segment has any.
fn segment_of(table: &str, smallest: u64) -> Option<&str> {
    let mut lines = table.lines();
    let titles: Vec<&str> = lines.next()?.split_whitespace().collect();
    let place = |name: &str| titles.iter().position(|title| *title == name);
    let (id, rss) = (place("shmid")?, place("rss")?);
    lines.find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let bytes: u64 = fields.get(rss)?.parse().ok()?;
        (bytes >= smallest).then_some(*fields.get(id)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_holds_pages_if_it_is_in_memory() {
        let table = "\
       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap
         0          3  1600              67108864  2211  2211      0     0     0     0     0 1764500000 1764500000 1764500000               2097151             67108864
         0          7  1600               4194304  2212  2212      0     0     0     0     0 1764500000 1764500000 1764500000               2097152                    0
";
        assert_eq!(segment_of(table, 2 << 20), Some("7"));
        assert_eq!(segment_of(table, 4 << 20), None);
        assert_eq!(segment_of("", 1), None);
    }

    #[test]
    fn only_hugetlbfs_mounts_count() {
        let line = "35 24 0:31 / /dev/hugepages rw shared:15 - hugetlbfs hugetlbfs rw,pagesize=2M";
        assert_eq!(hugetlbfs_point(line), Some("/dev/hugepages"));
        let other = "35 24 0:31 / /hugetlbfs rw - tmpfs hugetlbfs rw";
        assert_eq!(hugetlbfs_point(other), None);
    }
}
