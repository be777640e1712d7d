//! Pages that a guest gives back.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys;

/// Gives pages of a file back to the kernel, as a guest's balloon has its monitor do. Bytes, of whole pages.
///
/// # Errors
///
/// Of fallocate(2): `EBADF` unless the file is open for writing, `EPERM` if it is sealed against writing.
pub fn punch(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    sys::punch(file, offset, len)
}
