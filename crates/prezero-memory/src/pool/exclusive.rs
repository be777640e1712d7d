//! Proof that nobody else has a segment open or mapped.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use super::holders::Search;
use super::sys::lease_and_release;

/// How it is proved that nobody else has a segment open or mapped. What cannot be proved counts as in
/// use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// By the kernel: fcntl(2) grants a write lease (`F_SETLEASE`) on a file only to its only opener,
    /// whatever process, container or mapping the others would be in. Half a microsecond. Where the file
    /// system or the host refuses leases as such (`EINVAL`; hugetlbfs had them up to Linux 6.x, and later
    /// kernels make them a choice of each file system), [`Proof::ProcSearch`] decides instead.
    #[default]
    Leases,
    /// By looking into every process of the host, in `/proc/*/{fd,maps}`, for the file's device and
    /// inode. Milliseconds and more. It proves something only to root outside of any PID namespace, and
    /// does not see descriptors that are on their way in a socket. For hosts and tests without leases.
    ProcSearch,
}

/// Another process may have the file open for a moment, to try what we are trying: it has lost the lock to
/// us and closes it again.
const PATIENCE: [Duration; 6] = [
    Duration::from_micros(20),
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(200),
    Duration::from_micros(500),
    Duration::from_micros(1000),
];

impl Proof {
    /// Whether the descriptor's open file description is the only one of its file, and nothing but it
    /// refers to the file.
    pub(super) fn is_exclusive(self, file: BorrowedFd<'_>) -> io::Result<bool> {
        let mut patience = PATIENCE.iter();
        loop {
            let alone = match self {
                Self::Leases => match lease_and_release(file) {
                    Ok(()) => true,
                    Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => false,
                    Err(_) => Self::searched(file)?,
                },
                Self::ProcSearch => Self::searched(file)?,
            };
            match patience.next() {
                Some(pause) if !alone => thread::sleep(*pause),
                _ => return Ok(alone),
            }
        }
    }

    fn searched(file: BorrowedFd<'_>) -> io::Result<bool> {
        let facts = rustix::fs::fstat(file)?;
        let own = (std::process::id(), file.as_raw_fd());
        let mut search = Search::new([(facts.st_dev, facts.st_ino)], Some(own));
        search.run();
        Ok(search.proves_unused())
    }
}
