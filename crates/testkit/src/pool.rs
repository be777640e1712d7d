//! The kernel's hugepage pool of one page size, as sysfs shows it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is left to everybody else when the pool grows, in bytes.
const HEADROOM: u64 = 512 << 20;

/// The counters of one pool for the whole machine, in pages (Documentation/admin-guide/mm/hugetlbpage.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Pages in the pool, including surplus ones.
    pub total: u64,
    /// Pages that nobody uses yet; reserved ones are among them.
    pub free: u64,
    /// Free pages that are promised to mappings.
    pub reserved: u64,
    /// Pages above the persistent size of the pool: they leave it when they are freed.
    pub surplus: u64,
}

impl Counters {
    /// Pages that a new mapping can have: free and not reserved.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// What a write to `nr_hugepages` sets.
    fn persistent(&self) -> u64 {
        self.total.saturating_sub(self.surplus)
    }
}

/// What a pool has gained (or lost) on each node, to be given back by [`Pool::undo`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
#[must_use = "the change stays until it is undone"]
pub struct Change {
    nodes: Vec<(PathBuf, i64)>,
}

impl Change {
    /// Pages gained over all nodes.
    #[must_use]
    pub fn pages(&self) -> i64 {
        self.nodes.iter().map(|(_, pages)| pages).sum()
    }
}

/// The hugepages of one size. It changes counts by a difference, never to a remembered value, so that whoever else
/// changes them meanwhile keeps what they did.
#[derive(Debug, Clone)]
pub struct Pool {
    page_size: u64,
    dir: PathBuf,
}

impl Pool {
    /// The pool of pages of `page_size` bytes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when this machine has no pages of that size.
    pub fn of(page_size: u64) -> io::Result<Self> {
        let dir = Path::new("/sys/kernel/mm/hugepages").join(dir_name(page_size));
        if !dir.is_dir() {
            let text = format!("This machine has no pages of {} KiB", page_size >> 10);
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(Self { page_size, dir })
    }

    /// Bytes per page.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// The counters as they are now.
    ///
    /// # Errors
    ///
    /// When sysfs cannot be read.
    pub fn counters(&self) -> io::Result<Counters> {
        Ok(Counters {
            total: read(&self.dir.join("nr_hugepages"))?,
            free: read(&self.dir.join("free_hugepages"))?,
            reserved: read(&self.dir.join("resv_hugepages"))?,
            surplus: read(&self.dir.join("surplus_hugepages"))?,
        })
    }

    /// Grows the pool until at least `pages` are available; the kernel chooses the nodes.
    ///
    /// # Errors
    ///
    /// When sysfs refuses (usually: not root), or when the memory cannot be had; the pool is as before then.
    pub fn raise_available_to(&self, pages: u64) -> io::Result<Change> {
        self.adjust(|available| {
            pages
                .saturating_sub(available)
                .try_into()
                .unwrap_or(i64::MAX)
        })
    }

    /// Grows or shrinks the pool until exactly `pages` are available.
    ///
    /// # Errors
    ///
    /// As [`Pool::raise_available_to`].
    pub fn set_available_to(&self, pages: u64) -> io::Result<Change> {
        self.adjust(|available| difference(pages, available))
    }

    /// Takes a change back, node by node.
    ///
    /// # Errors
    ///
    /// When sysfs refuses, or when pages given away before cannot be had again.
    pub fn undo(&self, change: &Change) -> io::Result<()> {
        for (dir, pages) in &change.nodes {
            let target = persistent(dir)?.saturating_add_signed(-pages);
            for attempt in 0..4 {
                if attempt > 0 {
                    make_room();
                }
                write(&dir.join("nr_hugepages"), target)?;
                if persistent(dir)? >= target {
                    break;
                }
            }
            let reached = persistent(dir)?;
            if reached != target {
                let dir = dir.display();
                return Err(io::Error::other(format!(
                    "{dir} has {reached} pages instead of {target}"
                )));
            }
        }
        Ok(())
    }

    /// `missing` tells from the available pages how many are missing (or too many, below zero).
    fn adjust(&self, missing: impl Fn(u64) -> i64) -> io::Result<Change> {
        let before = self.nodes()?;
        let mut result = Ok(());
        for attempt in 0..4 {
            let now = self.counters()?;
            let pages = missing(now.available());
            if pages == 0 {
                break;
            }
            result = self.afford(pages);
            if result.is_err() {
                break;
            }
            if attempt > 0 {
                make_room();
            }
            let target = now.persistent().saturating_add_signed(pages);
            result = write(&self.dir.join("nr_hugepages"), target);
            if result.is_err() {
                break;
            }
        }
        let mut change = Change::default();
        for ((dir, before), (_, after)) in before.into_iter().zip(self.nodes()?) {
            if before != after {
                change.nodes.push((dir, difference(after, before)));
            }
        }
        let short = missing(self.counters()?.available());
        if result.is_ok() && short != 0 {
            let size = self.page_size >> 10;
            let which = if short > 0 { "missing" } else { "too many" };
            let text = format!("{} pages of {size} KiB are {which}", short.unsigned_abs());
            result = Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        match result {
            Ok(()) => Ok(change),
            Err(error) => {
                self.undo(&change)?;
                Err(error)
            }
        }
    }

    /// Refuses a growth that would drive the machine into the out-of-memory killer.
    fn afford(&self, pages: i64) -> io::Result<()> {
        let Ok(pages) = u64::try_from(pages) else {
            return Ok(());
        };
        let wanted = pages.saturating_mul(self.page_size);
        let available = memory_available()?;
        if wanted.saturating_add(HEADROOM) <= available {
            return Ok(());
        }
        let text = format!(
            "{pages} more pages are {} MiB, but only {} MiB of memory are available and {} MiB stay free",
            wanted >> 20,
            available >> 20,
            HEADROOM >> 20
        );
        Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
    }

    /// The pool's directory on each node, with its persistent pages; a kernel without NUMA has only the global one.
    fn nodes(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        let mut dirs = Vec::new();
        if let Ok(entries) = fs::read_dir("/sys/devices/system/node") {
            let pool = Path::new("hugepages").join(dir_name(self.page_size));
            dirs.extend(entries.flatten().map(|entry| entry.path().join(&pool)));
            dirs.retain(|dir| dir.is_dir());
            dirs.sort();
        }
        if dirs.is_empty() {
            dirs.push(self.dir.clone());
        }
        dirs.into_iter()
            .map(|dir| persistent(&dir).map(|pages| (dir, pages)))
            .collect()
    }
}

/// The memory that can be had without swapping, in bytes (`MemAvailable`, proc_meminfo(5)).
fn memory_available() -> io::Result<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    meminfo
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemAvailable:")?
                .strip_suffix("kB")?
                .trim()
                .parse()
                .ok()
        })
        .map(|kib: u64| kib << 10)
        .ok_or_else(|| io::Error::other("/proc/meminfo has no MemAvailable"))
}

fn dir_name(page_size: u64) -> String {
    format!("hugepages-{}kB", page_size >> 10)
}

fn difference(a: u64, b: u64) -> i64 {
    i64::try_from(i128::from(a) - i128::from(b)).unwrap_or(i64::MAX)
}

fn read(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?
        .trim()
        .parse()
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

fn write(path: &Path, pages: u64) -> io::Result<()> {
    fs::write(path, pages.to_string()).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("Cannot write {pages} to {}: {error}", path.display()),
        )
    })
}

fn persistent(dir: &Path) -> io::Result<u64> {
    let surplus = read(&dir.join("surplus_hugepages"))?;
    Ok(read(&dir.join("nr_hugepages"))?.saturating_sub(surplus))
}

/// Frees the page cache and moves what can be moved; both files are triggers and keep no state. Best effort.
fn make_room() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
    let _ = fs::write("/proc/sys/vm/compact_memory", "1");
}
