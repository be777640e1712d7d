//! The first file system: where it goes, and how it gets there.

use std::fs::File;
use std::path::{Path, PathBuf};

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use super::PAGE;
use super::error::BootError;
use super::kernel;

/// An initramfs (or initrd) file. What is in it is the kernel's business.
#[derive(Debug)]
pub struct Initramfs {
    path: PathBuf,
    file: File,
    len: u64,
}

impl Initramfs {
    /// Opens the file.
    ///
    /// # Errors
    ///
    /// It cannot be read, is no regular file, or is empty.
    pub fn open(path: &Path) -> Result<Initramfs, BootError> {
        let (file, len) = kernel::open("initramfs", path)?;
        if len == 0 {
            return Err(BootError::EmptyInitramfs { path: path.into() });
        }
        Ok(Initramfs {
            path: path.into(),
            file,
            len,
        })
    }

    /// Bytes of the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never true: an empty file is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The highest place from `from` on that ends at `ram_end`, the end of RAM, and at `max`, which is the kernel's limit:
    /// kernels unpack themselves at low places.
    pub(super) fn place(&self, from: u64, ram_end: u64, max: u64) -> Result<u64, BootError> {
        let (len, from) = (self.len, from.next_multiple_of(PAGE));
        let at = ram_end.min(max).checked_sub(len).map(|at| at & !(PAGE - 1));
        if let Some(at) = at.filter(|&at| at >= from) {
            return Ok(at);
        }
        let end = from.saturating_add(len);
        Err(match end > max & !(PAGE - 1) {
            true => BootError::InitramfsTooHigh {
                len,
                room: max.saturating_sub(from),
                max,
            },
            false => BootError::InitramfsTooLarge {
                len,
                room: ram_end.saturating_sub(from),
                end: end.next_multiple_of(PAGE),
                ram_end,
            },
        })
    }

    pub(super) fn load<M: GuestMemoryBackend>(
        &mut self,
        mem: &M,
        gpa: u64,
    ) -> Result<(), BootError> {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        mem.read_exact_volatile_from(GuestAddress(gpa), &mut self.file, len)
            .map_err(|source| BootError::Load {
                what: "initramfs",
                path: self.path.clone(),
                source: Box::new(source),
            })
    }
}
