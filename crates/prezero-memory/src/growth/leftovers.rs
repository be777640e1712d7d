//! What killed processes have left in the pools.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use prezero_host::PageSize;

use super::journal::{Balance, pid_in};
use super::kernel::{Kernel, Sysfs, persistent};
use super::lock;

/// Far above what a growth writes.
const LONGEST: u64 = 1 << 20;

/// Pages that a growth added to one pool and did not give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftPages {
    /// The pool's page size.
    pub page: PageSize,
    /// The node they are on; `None` where the process was killed before it knew.
    pub node: Option<u32>,
    /// How many.
    pub pages: u64,
    /// Whether it may be fewer: the process was killed while the kernel added pages or took them
    /// back.
    pub at_most: bool,
    /// Pages that the pool had, or was to have, without them, where fewer may be left: giving back
    /// stops there. Zero otherwise.
    pub floor: u64,
}

/// The journal of a growth whose process has ended without giving back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The journal.
    pub journal: PathBuf,
    /// The process that wrote it, by now perhaps another one's number.
    pub pid: u32,
    /// What it left. Empty when the journal is not one that this version understands.
    pub pools: Vec<LeftPages>,
}

/// The journals below the state directory that no process has locked; none where there is no such
/// directory.
///
/// It should be a directory that a reboot empties, as the pools are.
///
/// # Errors
///
/// When the directory cannot be read, or reading a journal fails.
pub fn leftovers(state_dir: &Path) -> io::Result<Vec<Leftover>> {
    let entries = match fs::read_dir(state_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Some(pid) = entry.file_name().to_str().and_then(pid_in) {
            // A growth makes plain files; opening a FIFO would wait for its writer.
            if entry.file_type()?.is_file() {
                found.extend(leftover(entry.path(), pid)?);
            }
        }
    }
    // What may be fewer stops at what the pool had then: before known pages are taken out of it.
    let certain = |left: &Leftover| left.pools.iter().all(|pool| !pool.at_most);
    let floor = |left: &Leftover| left.pools.iter().map(|pool| pool.floor).max();
    found.sort_by(|a, b| {
        let order = certain(a).cmp(&certain(b)).then(floor(b).cmp(&floor(a)));
        order.then(a.journal.cmp(&b.journal))
    });
    Ok(found)
}

/// Says in the journals what came of changes whose growth was killed before it could: the caller
/// has the host's lock, without which nobody changes the pools through prezero, so the pools still
/// tell. Later their size means something else. Best effort.
pub(super) fn settle(state_dir: &Path, kernel: &dyn Kernel) {
    for entry in fs::read_dir(state_dir).into_iter().flatten().flatten() {
        let is_journal = entry.file_name().to_str().and_then(pid_in).is_some();
        if is_journal && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = settle_one(&entry.path(), kernel);
        }
    }
}

fn settle_one(path: &Path, kernel: &dyn Kernel) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    // A living process says itself what came of it.
    if file.try_lock().is_err() {
        return Ok(());
    }
    let mut text = String::new();
    (&mut file).take(LONGEST).read_to_string(&mut text)?;
    let pending = Balance::parse(&text).and_then(|balance| balance.pending.last().copied());
    let Some(change) = pending else {
        return Ok(());
    };
    let now: u64 = persistent(&kernel.facts(), change.page)
        .into_iter()
        .filter(|(node, _)| change.node.is_none_or(|wanted| wanted == *node))
        .map(|(_, pages)| pages)
        .sum();
    let moved = now.cast_signed().saturating_sub(change.from.cast_signed());
    let pages = moved.clamp(change.pages.min(0), change.pages.max(0));
    let node = change
        .node
        .map_or("any".to_owned(), |node| node.to_string());
    // In place of a line that was cut short.
    let complete = text.rfind('\n').map_or(0, |end| end as u64 + 1);
    file.set_len(complete)?;
    file.seek(SeekFrom::Start(complete))?;
    file.write_all(format!("done {} {node}={pages:+}\n", change.page.bytes()).as_bytes())?;
    Ok(())
}

fn leftover(journal: PathBuf, pid: u32) -> io::Result<Option<Leftover>> {
    let file = match File::open(&journal) {
        // Given back since the directory was read, or just being made: then only its owner may.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            return Ok(None);
        }
        file => file?,
    };
    // Shared, so that two that look at the same time both find it.
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Its process may have given back and removed it since it was opened.
    if file.metadata()?.nlink() == 0 {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    let balance = Balance::parse(&String::from_utf8_lossy(&bytes));
    let pools = balance.as_ref().map(left).unwrap_or_default();
    let nothing = balance.is_some() && pools.is_empty();
    Ok((!nothing).then_some(Leftover {
        journal,
        pid,
        pools,
    }))
}

fn left(balance: &Balance) -> Vec<LeftPages> {
    let being_given_back = |page, node| {
        let mut pending = balance.pending.iter();
        pending.find(|change| (change.page, change.node) == (page, node) && change.pages < 0)
    };
    let known = balance
        .shares()
        .into_iter()
        .map(|(page, node, pages)| LeftPages {
            page,
            node,
            pages,
            at_most: being_given_back(page, node).is_some(),
            floor: being_given_back(page, node)
                .map_or(0, |change| change.from.saturating_add_signed(change.pages)),
        });
    let announced = balance.pending.iter().filter_map(|change| {
        let pages = u64::try_from(change.pages)
            .ok()
            .filter(|pages| *pages > 0)?;
        Some(LeftPages {
            page: change.page,
            node: change.node,
            pages,
            at_most: true,
            floor: change.from,
        })
    });
    // In this order for the same reason.
    announced.chain(known).collect()
}

impl Leftover {
    /// What a shell is to run to give the pages back and remove the journal: one command that holds the
    /// lock that growing holds, and that does nothing a second time. Where [`LeftPages::at_most`] is set
    /// it takes the pool no lower than it was before.
    #[must_use]
    pub fn fix(&self) -> String {
        let kernel = Sysfs::new(Path::new("/"));
        let lock = self.journal.with_file_name(lock::NAME);
        let (lock, journal) = (quoted(&lock), quoted(&self.journal));
        if self.pools.is_empty() {
            return format!("cat {journal}\nsudo rm {journal}");
        }
        let mut script = "test -e \"$0\"".to_owned();
        for left in &self.pools {
            let dir = kernel.pool(left.page, left.node);
            let (pages, floor) = (left.pages, left.floor);
            // nr_hugepages shows surplus pages too, but is written without them.
            let _ = write!(
                script,
                " && (cd {} && n=$(($(cat nr_hugepages) - $(cat surplus_hugepages))) && m=$((n - {pages})) && echo $((m > {floor} ? m : n < {floor} ? n : {floor})) > nr_hugepages)",
                dir.display()
            );
        }
        format!("sudo flock {lock} sh -c '{script} && rm \"$0\"' {journal}")
    }
}

/// A path for a shell.
fn quoted(path: &Path) -> Cow<'_, str> {
    let path = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    match path.chars().all(plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A directory with one journal.
    fn with_journal(bytes: &[u8]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::write(dir.path().join("growth-7-0"), bytes).expect("written");
        fs::write(dir.path().join("growth.lock"), "").expect("written");
        dir
    }

    fn pools(journal: &str) -> Vec<LeftPages> {
        let dir = with_journal(journal.as_bytes());
        let mut found = leftovers(dir.path()).expect("readable");
        let leftover = found.pop().expect("one");
        assert_eq!((leftover.pid, found), (7, vec![]));
        leftover.pools
    }

    const ADDED: LeftPages = LeftPages {
        page: PageSize::HUGE_2M,
        node: Some(1),
        pages: 14,
        at_most: false,
        floor: 0,
    };

    #[test]
    fn pages_are_known_or_at_most_so_many() {
        let added = "prezero growth 1\nintend 2097152 any +14 from 512\ndone 2097152 1=+14\n";
        assert_eq!(pools(added), [ADDED]);
        // Taken away again, 512 pages were to become 498.
        let at_most = LeftPages {
            at_most: true,
            floor: 498,
            ..ADDED
        };
        assert_eq!(
            pools(&format!("{added}intend 2097152 1 -14 from 512\n")),
            [at_most]
        );
        // What may be fewer comes first: it stops at what the pool had then.
        let two = [
            LeftPages {
                pages: 3,
                floor: 512,
                ..at_most
            },
            ADDED,
        ];
        assert_eq!(
            pools(&format!("{added}intend 2097152 1 +3 from 512\n")),
            two
        );
        let unknown = LeftPages {
            node: None,
            floor: 512,
            ..at_most
        };
        assert_eq!(
            pools("prezero growth 1\nintend 2097152 any +14 from 512\ndone 2097152 1="),
            [unknown]
        );
    }

    #[test]
    fn a_growth_that_left_nothing_is_no_leftover() {
        let back = "prezero growth 1\nintend 2097152 1 +14 from 512\ndone 2097152 1=+14\nintend 2097152 1 -14 from 512\ndone 2097152 1=-14\n";
        for journal in ["", "prezero growth 1\n", "prezero gro", back] {
            let dir = with_journal(journal.as_bytes());
            assert_eq!(leftovers(dir.path()).expect("readable"), [], "{journal:?}");
        }
        assert_eq!(leftovers(Path::new("/nonexistent")).expect("nothing"), []);
    }

    #[test]
    fn a_locked_journal_is_no_leftover() {
        let dir = with_journal(b"prezero growth 1\nintend 2097152 1 +14 from 512\n");
        let journal = File::open(dir.path().join("growth-7-0")).expect("readable");
        journal.lock().expect("free");
        assert_eq!(leftovers(dir.path()).expect("readable"), []);
        drop(journal);
        assert_eq!(leftovers(dir.path()).expect("readable").len(), 1);
    }

    #[test]
    fn a_journal_that_is_not_understood_is_shown_before_it_goes() {
        let dir = with_journal(b"prezero growth 2\n");
        let found = leftovers(dir.path()).expect("readable");
        let [leftover] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(leftover.pools, []);
        let journal = leftover.journal.display();
        assert_eq!(leftover.fix(), format!("cat {journal}\nsudo rm {journal}"));
    }

    #[test]
    fn a_path_is_one_word_of_the_shell() {
        assert_eq!(
            quoted(Path::new("/run/prezero/growth-1-0")),
            "/run/prezero/growth-1-0"
        );
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), journal: bool) {
            let mut text = if journal { b"prezero growth 1\n".to_vec() } else { vec![] };
            text.extend(bytes);
            text.push(b'\n');
            for leftover in leftovers(with_journal(&text).path()).expect("readable") {
                prop_assert!(leftover.fix().contains("rm "));
            }
        }
    }
}
