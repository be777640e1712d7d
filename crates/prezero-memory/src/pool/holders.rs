//! Who has segments open or mapped, by device and inode, from /proc.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

/// The first PID namespace (`PROC_PID_INIT_INO` in include/linux/proc_ns.h): from inside another one,
/// the processes outside of it cannot be seen.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// A process that has a segment open or mapped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Its process id, in the PID namespace of /proc.
    pub pid: u32,
    /// Its name, at most 15 bytes (proc_pid_comm(5)).
    pub comm: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pid, self.comm)
    }
}

/// A device number and an inode number.
pub(super) type FileId = (u64, u64);

/// One look at every process.
#[derive(Debug)]
pub(super) struct Search {
    /// `/proc`; another directory in tests.
    proc: PathBuf,
    holders: HashMap<FileId, Vec<Holder>>,
    /// A descriptor that is not counted: the searcher's own.
    except: Option<(u32, i32)>,
    /// Processes that could not be looked at.
    unreadable: u64,
    /// Whether process 1 was looked at: where it is hidden, so are others.
    saw_first: bool,
}

impl Search {
    pub(super) fn new(files: impl IntoIterator<Item = FileId>, except: Option<(u32, i32)>) -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            holders: files.into_iter().map(|file| (file, Vec::new())).collect(),
            except,
            unreadable: 0,
            saw_first: false,
        }
    }

    pub(super) fn run(&mut self) {
        let Ok(processes) = fs::read_dir(&self.proc) else {
            self.unreadable += 1;
            return;
        };
        for process in processes.flatten() {
            let name = process.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match self.look_at(pid, &process.path()) {
                Ok(()) => self.saw_first |= pid == 1,
                // Gone since it was listed.
                Err(error) if is_gone(&error) => {}
                Err(_) => self.unreadable += 1,
            }
        }
    }

    /// Who has the file.
    pub(super) fn holders(&self, file: FileId) -> &[Holder] {
        self.holders.get(&file).map_or(&[], Vec::as_slice)
    }

    /// Whether nobody has any of the files, and nobody can have escaped the search.
    pub(super) fn proves_unused(&self) -> bool {
        let first_namespace = fs::read_link(self.proc.join("self/ns/pid"))
            .is_ok_and(|namespace| namespace == Path::new(FIRST_PID_NAMESPACE));
        let unheld = self.holders.values().all(Vec::is_empty);
        unheld && self.unreadable == 0 && self.saw_first && first_namespace
    }

    fn look_at(&mut self, pid: u32, process: &Path) -> io::Result<()> {
        let mut mapped = false;
        // By thread: one may have descriptors of its own (CLONE_FILES), and the first may have ended.
        for thread in fs::read_dir(process.join("task"))? {
            let looked = thread.and_then(|thread| {
                self.descriptors(pid, process, &thread.path().join("fd"))?;
                if !mapped {
                    mapped = self.mappings(pid, process, &thread.path().join("maps"))?;
                }
                Ok(())
            });
            match looked {
                Err(error) if !is_gone(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn descriptors(&mut self, pid: u32, process: &Path, dir: &Path) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let fd = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if self.except.is_some() && self.except == fd.map(|fd| (pid, fd)) {
                continue;
            }
            // Not synchronised: a dead network file system is not waited for, and no segment is on one.
            let flags = AtFlags::STATX_DONT_SYNC;
            let facts = match statx(CWD, entry.path(), flags, StatxFlags::INO) {
                Ok(facts) => facts,
                Err(errno) if is_gone(&errno.into()) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let device = makedev(facts.stx_dev_major, facts.stx_dev_minor);
            self.note((device, facts.stx_ino), pid, process);
        }
        Ok(())
    }

    /// False if nothing is mapped, as for a thread that has ended.
    fn mappings(&mut self, pid: u32, process: &Path, maps: &Path) -> io::Result<bool> {
        let maps = fs::read(maps)?;
        let maps = String::from_utf8_lossy(&maps);
        for file in maps.lines().filter_map(mapped_file) {
            self.note(file, pid, process);
        }
        Ok(!maps.is_empty())
    }

    fn note(&mut self, file: FileId, pid: u32, process: &Path) {
        let Some(holders) = self.holders.get_mut(&file) else {
            return;
        };
        if holders.last().is_none_or(|last| last.pid != pid) {
            let comm = fs::read_to_string(process.join("comm")).unwrap_or_default();
            let comm = comm.trim_end().to_owned();
            holders.push(Holder { pid, comm });
        }
    }
}

/// `7f0000000000-7f0000200000 rw-s 00000000 00:1f 42    /dev/hugepages/…` (proc_pid_maps(5)).
fn mapped_file(line: &str) -> Option<FileId> {
    let mut words = line.split_ascii_whitespace().skip(3);
    let (major, minor) = words.next()?.split_once(':')?;
    let inode = words.next()?.parse().ok().filter(|inode| *inode > 0)?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    Some((makedev(hex(major)?, hex(minor)?), inode))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The files that somebody has locked with flock(2), as far as this PID namespace shows it. Lines are
/// `1: FLOCK  ADVISORY  WRITE 31632 00:1f:42 0 EOF` (proc_locks(5)).
pub(super) fn locked_files() -> Vec<FileId> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().filter_map(locked_file).collect()
}

fn locked_file(line: &str) -> Option<FileId> {
    let mut words = line.split_ascii_whitespace().skip(1);
    // Those that wait have an arrow there.
    if words.next()? != "FLOCK" {
        return None;
    }
    let mut file = words.nth(3)?.splitn(3, ':');
    let hex = |text| u32::from_str_radix(text, 16).ok();
    let device = makedev(hex(file.next()?)?, hex(file.next()?)?);
    Some((device, file.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    /// A /proc of two processes; the second one, of two threads, holds what the test gives it.
    fn proc() -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        for thread in ["1/task/1", "77/task/77", "77/task/78"] {
            fs::create_dir_all(proc.path().join(thread).join("fd")).unwrap();
            let maps = "7ffe0000-7fff0000 rw-p 00000000 00:00 0   [stack]\n";
            fs::write(proc.path().join(thread).join("maps"), maps).unwrap();
        }
        fs::write(proc.path().join("77/comm"), "vmm\n").unwrap();
        fs::create_dir_all(proc.path().join("self/ns")).unwrap();
        symlink(FIRST_PID_NAMESPACE, proc.path().join("self/ns/pid")).unwrap();
        proc
    }

    /// What a search for a file finds there: whether it proves that nobody has it, and who does.
    fn search(proc: &Path, file: &Path, except: Option<(u32, i32)>) -> (bool, Vec<String>) {
        let facts = fs::metadata(file).unwrap();
        let id = (facts.dev(), facts.ino());
        let mut search = Search::new([id], except);
        search.proc = proc.to_owned();
        search.run();
        let holders = search.holders(id).iter().map(ToString::to_string);
        (search.proves_unused(), holders.collect())
    }

    #[test]
    fn descriptors_of_any_thread_and_mappings_are_found() {
        let proc = proc();
        let (at, file) = (
            |path: &str| proc.path().join(path),
            proc.path().join("segment"),
        );
        fs::write(&file, "").unwrap();
        assert_eq!(search(proc.path(), &file, None), (true, vec![]));
        symlink(&file, at("77/task/78/fd/5")).unwrap();
        assert_eq!(
            search(proc.path(), &file, None),
            (false, vec!["77 (vmm)".to_owned()])
        );
        assert_eq!(search(proc.path(), &file, Some((77, 5))), (true, vec![]));
        assert!(!search(proc.path(), &file, Some((1, 5))).0);
        fs::remove_file(at("77/task/78/fd/5")).unwrap();

        let facts = fs::metadata(&file).unwrap();
        let (major, minor) = (libc::major(facts.dev()), libc::minor(facts.dev()));
        let line = format!(
            "7f00-7f20 rw-s 0 {major:02x}:{minor:02x} {}  /gone (deleted)\n",
            facts.ino()
        );
        // The first thread has ended, and shows no mappings.
        fs::write(at("77/task/77/maps"), "").unwrap();
        fs::write(at("77/task/78/maps"), line).unwrap();
        assert_eq!(
            search(proc.path(), &file, None),
            (false, vec!["77 (vmm)".to_owned()])
        );
    }

    #[test]
    fn what_cannot_be_seen_proves_nothing() {
        type Hide = fn(&Path);
        let unseen: [(&str, Hide); 4] = [
            ("hidepid", |proc| {
                fs::remove_dir_all(proc.join("1")).unwrap()
            }),
            ("a namespace", |proc| {
                fs::remove_file(proc.join("self/ns/pid")).unwrap();
                symlink("pid:[4026532000]", proc.join("self/ns/pid")).unwrap();
            }),
            // Not a directory: as good as one that may not be read, which root always may.
            ("descriptors", |proc| {
                fs::remove_dir(proc.join("77/task/78/fd")).unwrap();
                fs::write(proc.join("77/task/78/fd"), "").unwrap();
            }),
            ("mappings", |proc| {
                fs::remove_file(proc.join("77/task/77/maps")).unwrap();
                fs::create_dir(proc.join("77/task/77/maps")).unwrap();
            }),
        ];
        for (what, hide) in unseen {
            let proc = proc();
            let file = proc.path().join("segment");
            fs::write(&file, "").unwrap();
            assert!(search(proc.path(), &file, None).0);
            hide(proc.path());
            assert_eq!(search(proc.path(), &file, None), (false, vec![]), "{what}");
        }
    }

    #[test]
    fn lines_of_proc_name_files() {
        let maps = "7f0000000000-7f0000200000 rw-s 00000000 00:1f 42    /mnt/x 1 (deleted)";
        assert_eq!(mapped_file(maps), Some((makedev(0, 0x1f), 42)));
        let anonymous = "7ffe0000-7fff0000 rw-p 00000000 00:00 0   [stack]";
        assert_eq!(mapped_file(anonymous), None);
        let lock = "12: FLOCK  ADVISORY  WRITE 31632 fe:00:1001 0 EOF";
        assert_eq!(locked_file(lock), Some((makedev(0xfe, 0), 1001)));
        let waits = "12: -> FLOCK  ADVISORY  WRITE 31632 fe:00:1001 0 EOF";
        assert_eq!(locked_file(waits), None);
        let range = "1: POSIX  ADVISORY  WRITE 31632 fe:00:1001 0 EOF";
        assert_eq!(locked_file(range), None);
        assert_eq!(locked_file("garbage"), None);
    }
}
