//! Pages with hardware errors, on machines that are there to be broken.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::sys;

/// Makes the kernel believe that the page at `offset` of a file on hugetlbfs has a hardware error. It stays so until
/// the machine is booted again: never on a machine that is used for anything else.
///
/// # Errors
///
/// When the file cannot be opened or mapped, and of madvise(2) with `MADV_HWPOISON`: `EPERM` without
/// `CAP_SYS_ADMIN`, `EINVAL` from a kernel without `CONFIG_MEMORY_FAILURE`.
pub fn poison_page(file: &Path, offset: u64) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(file)?;
    // hugetlbfs says its page size there.
    let page = file.metadata()?.blksize();
    sys::poison(&file, offset - offset % page, page)
}
