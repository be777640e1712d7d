//! The owner of one segment's mapping, while the pool works on it.

use std::io;
use std::os::fd::BorrowedFd;

use super::sys::map_shared;
use crate::mapping::MapStep;
use crate::plan::Origin;
use crate::size::PageBytes;
use crate::sys::{self, Advice};
use crate::work::Target;

/// Addresses asked for in one move_pages(2) call.
const BATCH: u64 = 4096;

/// A segment that is mapped. Unmapped on drop.
#[derive(Debug)]
pub(super) struct Mapped {
    addr: u64,
    len: PageBytes,
    node: u32,
}

/// A page that is not on the segment's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elsewhere {
    /// Offset of the first such page, in bytes.
    pub(super) offset: u64,
    /// The node it is on.
    pub(super) found: u32,
}

impl Mapped {
    /// Maps all of a file. Bound, its pages come from `node` or not at all, and mmap fails where the node
    /// has too few.
    pub(super) fn new(
        file: BorrowedFd<'_>,
        len: PageBytes,
        node: u32,
        bound: bool,
    ) -> Result<Self, (MapStep, io::Error)> {
        let at = |step| move |source| (step, source);
        let map = || map_shared(file, len.bytes());
        let addr = match bound {
            true => sys::bound_to(node, map).map_err(at(MapStep::Bind))?,
            false => map(),
        };
        let addr = addr.map_err(at(MapStep::Map))?;
        // From here on drop unmaps it.
        let mapped = Self { addr, len, node };
        if bound {
            sys::bind(addr, len.bytes(), node).map_err(at(MapStep::Bind))?;
        }
        for advice in [Advice::DontFork, Advice::DontDump] {
            sys::advise(addr, len.bytes(), advice).map_err(at(MapStep::Advise))?;
        }
        Ok(mapped)
    }

    pub(super) fn target(&self, origin: Origin) -> Target {
        Target {
            addr: self.addr,
            len: self.len,
            node: self.node,
            origin,
        }
    }

    /// The first page that is on another node, if any.
    pub(super) fn elsewhere(&self) -> io::Result<Option<Elsewhere>> {
        let page = self.len.page_size().bytes();
        let mut offset = 0;
        while offset < self.len.bytes() {
            let end = self.len.bytes().min(offset + BATCH * page);
            let step = usize::try_from(page).unwrap_or(usize::MAX);
            let addresses: Vec<u64> = (offset..end).step_by(step).map(|o| self.addr + o).collect();
            let mut nodes = vec![0; addresses.len()];
            sys::page_nodes(&addresses, &mut nodes)?;
            for (addr, node) in addresses.iter().zip(nodes) {
                match u32::try_from(node) {
                    Ok(node) if node == self.node => {}
                    Ok(found) => {
                        let offset = addr - self.addr;
                        return Ok(Some(Elsewhere { offset, found }));
                    }
                    Err(_) => return Err(io::Error::from_raw_os_error(node.saturating_neg())),
                }
            }
            offset = end;
        }
        Ok(None)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's, and those who work on it borrow the owner.
        let unmapped = unsafe { sys::unmap(self.addr, self.len.bytes()) };
        debug_assert!(unmapped.is_ok(), "munmap of {}: {unmapped:?}", self.len);
    }
}
