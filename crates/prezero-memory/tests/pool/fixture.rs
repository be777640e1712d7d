//! A pool on a mount of the test's own, and what tests do to its memory.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use prezero_memory::pool::{
    Created, Lease, Pool, PoolError, PoolRequest, ScrubReport, ScrubRequest, State, TakeRequest,
};
use prezero_memory::{Control, Host, Origin, PageBytes, PageSize};
use prezero_testkit::{Hugepages, PrivateMount};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 2 << 20;
/// Bytes of a segment.
pub(crate) const SEGMENT: u64 = 4 << 20;

/// Hugepages, and a mount for a pool of them. The pages are counted after the mount is gone.
#[derive(Debug)]
pub(crate) struct Fixture {
    mount: PrivateMount,
    pub(crate) pages: Hugepages,
}

impl Fixture {
    /// None, after a skip, where the machine lacks something.
    #[track_caller]
    pub(crate) fn new(pages: u64) -> Option<Self> {
        let pages = Hugepages::take(PAGE, pages)?;
        let mount = PrivateMount::hugetlbfs(PAGE)?;
        Some(Self { mount, pages })
    }

    /// One with not a page more than that.
    #[track_caller]
    pub(crate) fn exactly(pages: u64) -> Option<Self> {
        let pages = Hugepages::exactly(PAGE, pages)?;
        let mount = PrivateMount::hugetlbfs(PAGE)?;
        Some(Self { mount, pages })
    }

    pub(crate) fn mount(&self) -> &Path {
        self.mount.path()
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.mount.path().join("pool")
    }

    /// The pool with so many segments in all.
    #[track_caller]
    pub(crate) fn pool(&self, segments: u64) -> Pool {
        let (pool, _) = self
            .create(segments * SEGMENT, SEGMENT)
            .expect("pages are there");
        pool
    }

    pub(crate) fn create(&self, bytes: u64, segment: u64) -> Result<(Pool, Created), PoolError> {
        Pool::create(
            &self.dir(),
            &request(bytes, segment),
            &Host::probe(),
            None,
            &Control::default(),
        )
    }

    /// The directory of the only node with segments.
    pub(crate) fn node_dir(&self) -> PathBuf {
        let mut dirs = fs::read_dir(self.dir())
            .expect("the pool's directory")
            .flatten();
        dirs.next().expect("a node's directory").path()
    }

    /// The names in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.node_dir())
            .expect("the node's directory")
            .flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().expect("ASCII"))
            .collect();
        names.sort();
        names
    }

    /// The path of the only segment in this state.
    #[track_caller]
    pub(crate) fn only(&self, state: State) -> PathBuf {
        let end = format!(".{}", state.name());
        let mut names = self.names();
        names.retain(|name| name.ends_with(&end));
        assert_eq!(names.len(), 1, "{:?}", self.names());
        self.node_dir().join(&names[0])
    }
}

pub(crate) fn request(bytes: u64, segment: u64) -> PoolRequest {
    PoolRequest {
        bytes,
        segment: PageBytes::new(segment, PageSize::HUGE_2M).expect("whole pages"),
        nodes: Vec::new(),
        exchange_only: false,
    }
}

/// Everything that is free, up to so many bytes.
pub(crate) fn up_to(max_bytes: u64) -> TakeRequest {
    TakeRequest {
        max_bytes,
        ..TakeRequest::default()
    }
}

#[track_caller]
pub(crate) fn take(pool: &Pool, max_bytes: u64) -> Vec<Lease> {
    pool.take(&up_to(max_bytes)).expect("readable directories")
}

#[track_caller]
pub(crate) fn take_only(pool: &Pool) -> Lease {
    let mut leases = take(pool, u64::MAX);
    assert_eq!(leases.len(), 1);
    leases.remove(0)
}

#[track_caller]
pub(crate) fn scrub(pool: &Pool) -> ScrubReport {
    scrub_as(pool, &ScrubRequest::default())
}

#[track_caller]
pub(crate) fn scrub_as(pool: &Pool, request: &ScrubRequest) -> ScrubReport {
    pool.scrub(&Host::probe(), request, &Control::default())
        .expect("nothing stops it")
}

/// How many segments are free and clean, free and dirty, leased, retired, incomplete.
#[track_caller]
pub(crate) fn counts(pool: &Pool) -> [u64; 5] {
    let status = pool.status().expect("readable directories");
    let mut sum = [0; 5];
    for total in status.totals {
        let of = [
            total.clean,
            total.dirty,
            total.leased,
            total.retired,
            total.incomplete,
        ];
        for (sum, n) in sum.iter_mut().zip(of) {
            *sum += n;
        }
    }
    sum
}

/// A file mapped shared, until it is dropped.
#[derive(Debug)]
pub(crate) struct View {
    addr: *mut u64,
    len: usize,
}

impl View {
    #[track_caller]
    pub(crate) fn of(file: BorrowedFd<'_>, len: u64) -> Self {
        Self::with(file, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    #[track_caller]
    pub(crate) fn read_only(file: BorrowedFd<'_>, len: u64) -> Self {
        Self::with(file, len, libc::PROT_READ)
    }

    #[track_caller]
    fn with(file: BorrowedFd<'_>, len: u64, access: i32) -> Self {
        let len = usize::try_from(len).expect("64 bits");
        // SAFETY: a new mapping at an address of the kernel's choice.
        let addr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(
            addr,
            libc::MAP_FAILED,
            "{}",
            std::io::Error::last_os_error()
        );
        Self {
            addr: addr.cast(),
            len,
        }
    }

    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the mapping is writable where tests fill it, and no reference into it exists.
        unsafe { std::ptr::write_bytes(self.addr.cast::<u8>(), byte, self.len) };
    }

    pub(crate) fn write(&self, word: usize, value: u64) {
        assert!(word < self.len / 8);
        // SAFETY: inside of the mapping; others may write there too, which is what is tested.
        unsafe { self.addr.add(word).write_volatile(value) };
    }

    pub(crate) fn read(&self, word: usize) -> u64 {
        assert!(word < self.len / 8);
        // SAFETY: inside of the mapping.
        unsafe { self.addr.add(word).read_volatile() }
    }

    /// vmsplice(2) of the first bytes: the pipe keeps their page.
    #[track_caller]
    pub(crate) fn splice_into(&self, pipe: &std::io::PipeWriter) {
        let bytes = libc::iovec {
            iov_base: self.addr.cast(),
            iov_len: 8,
        };
        // SAFETY: the bytes are mapped, and nothing is written to them.
        let spliced = unsafe { libc::vmsplice(pipe.as_raw_fd(), &raw const bytes, 1, 0) };
        assert_eq!(spliced, 8, "{}", std::io::Error::last_os_error());
    }

    /// How many words are not zero.
    pub(crate) fn stained(&self) -> usize {
        (0..self.len / 8)
            .filter(|word| self.read(*word) != 0)
            .count()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping is this view's.
        unsafe { libc::munmap(self.addr.cast(), self.len) };
    }
}

/// Fills a segment's memory, as a guest might.
pub(crate) fn stain(lease: &Lease) {
    View::of(lease.file(), lease.len().bytes()).fill(0xa5);
}

/// What a guest must be able to rely on: whatever is said to be clean is zero. Takes all there is.
#[track_caller]
pub(crate) fn assert_clean_is_zero(pool: &Pool) {
    for lease in take(pool, u64::MAX) {
        let stained = View::of(lease.file(), lease.len().bytes()).stained();
        let told = lease.origin() == Origin::Dirty;
        assert!(
            told || stained == 0,
            "{stained} words of {:?}",
            lease.name()
        );
    }
}

/// Gives pages of a file back, as a guest's balloon does.
#[track_caller]
pub(crate) fn punch(path: &Path, offset: u64, len: u64) {
    prezero_testkit::punch(open(path, true).as_fd(), offset, len).expect("it is open for writing");
}

/// Opens a path as somebody does who knows nothing of leases.
#[track_caller]
pub(crate) fn open(path: &Path, write: bool) -> fs::File {
    let mut options = fs::OpenOptions::new();
    options
        .read(true)
        .write(write)
        .open(path)
        .unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// A directory, to be locked as one is that somebody creates or destroys.
#[track_caller]
pub(crate) fn open_directory(path: &Path) -> fs::File {
    fs::File::open(path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}
