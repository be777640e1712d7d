//! The owner of a segment's mapping, or of a part of it, while the pool works on it.

use std::io;
use std::os::fd::BorrowedFd;

use prezero_host::IdSet;

use super::sys::map_shared;
use crate::clear::{ClearError, ClearReport, ClearRequest, clear};
use crate::control::Control;
use crate::mapping::MapStep;
use crate::plan::Origin;
use crate::policy::{Policy, sys as policy};
use crate::size::PageBytes;
use crate::sys::{self, Advice};
use crate::work::Target;
use crate::workers::Workers;

/// Faults in the pages of a range, or says why it cannot: madvise(2), `MADV_POPULATE_WRITE`.
pub(super) type Touch = fn(u64, u64) -> io::Result<()>;

/// Addresses asked for in one move_pages(2) call.
const BATCH: u64 = 4096;

/// A segment, or a part of one, that is mapped. Unmapped on drop.
#[derive(Debug)]
pub(super) struct Mapped {
    addr: u64,
    len: PageBytes,
    node: u32,
}

/// A page that is not on the segment's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elsewhere {
    /// Offset of the first such page, in bytes from where the mapping starts.
    pub(super) offset: u64,
    /// The node it is on.
    pub(super) found: u32,
}

/// A page that cannot be used.
#[derive(Debug)]
pub(super) struct BadPage {
    /// Its offset in bytes.
    pub(super) offset: u64,
    pub(super) source: io::Error,
}

impl Mapped {
    /// Maps `len` bytes of a file. The kernel promises the pages that are missing, and keeps the promise to
    /// the file, not to the mapping. Bound, they come from `node` or not at all, and mmap fails where the
    /// node has too few.
    pub(super) fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        len: PageBytes,
        node: u32,
        bound: bool,
    ) -> Result<Self, (MapStep, io::Error)> {
        let at = |step| move |source| (step, source);
        let map = || map_shared(file, offset, len.bytes());
        let addr = match bound {
            true => policy::bound_to(node, map).map_err(at(MapStep::Bind))?,
            false => map(),
        };
        let addr = addr.map_err(at(MapStep::Map))?;
        // From here on drop unmaps it.
        let mapped = Self { addr, len, node };
        if bound {
            let nodes = IdSet::from_iter([node]);
            policy::keep_to(addr, len.bytes(), Policy::Bind, &nodes, node)
                .map_err(at(MapStep::Bind))?;
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

    /// Sees that every page is there and can be written to.
    pub(super) fn touched(self, touch: Touch) -> Result<Resident, BadPage> {
        let Err(source) = touch(self.addr, self.len.bytes()) else {
            return Ok(Resident(self));
        };
        // Which page it is, and whether it still fails: a signal may have interrupted the whole.
        let page = self.len.page_size().bytes();
        let step = usize::try_from(page).unwrap_or(usize::MAX);
        let mut offsets = (0..self.len.bytes()).step_by(step);
        let refused = offsets.find_map(|offset| {
            let source = touch(self.addr + offset, page).err()?;
            Some(BadPage { offset, source })
        });
        match (refused, source.kind()) {
            (Some(bad), _) => Err(bad),
            (None, io::ErrorKind::Interrupted) => Ok(Resident(self)),
            (None, _) => Err(BadPage { offset: 0, source }),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's, and those who work on it borrow the owner.
        let unmapped = unsafe { sys::unmap(self.addr, self.len.bytes()) };
        debug_assert!(unmapped.is_ok(), "munmap of {}: {unmapped:?}", self.len);
    }
}

/// A locked segment of which every page is mapped and present.
#[derive(Debug)]
pub(super) struct Resident(Mapped);

impl Resident {
    pub(super) fn elsewhere(&self) -> io::Result<Option<Elsewhere>> {
        self.0.elsewhere()
    }

    /// All of it, in pieces of at most `most` bytes, or a page.
    pub(super) fn pieces(&self, most: u64) -> impl Iterator<Item = Piece<'_>> {
        let page = self.0.len.page_size();
        let piece = page.round_down(most).max(page.bytes());
        let pieces = self.0.len.bytes().div_ceil(piece);
        (0..pieces).filter_map(move |n| {
            let len = piece.min(self.0.len.bytes() - n * piece);
            Some(Piece {
                of: self,
                offset: n * piece,
                len: PageBytes::new(len, page)?,
            })
        })
    }
}

/// A part of a segment that is to be cleared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    of: &'a Resident,
    offset: u64,
    len: PageBytes,
}

impl Piece<'_> {
    pub(super) fn bytes(&self) -> u64 {
        self.len.bytes()
    }

    fn target(&self) -> Target {
        Target {
            addr: self.of.0.addr + self.offset,
            len: self.len,
            node: self.of.0.node,
            origin: Origin::Dirty,
        }
    }
}

/// Clears pieces of segments on the workers of their nodes, and returns when every byte is zero and
/// visible to every thread.
pub(super) fn clear_pieces(
    workers: &Workers,
    pieces: &[Piece<'_>],
    request: &ClearRequest,
    control: &Control<'_>,
) -> Result<ClearReport, ClearError> {
    let targets: Vec<Target> = pieces.iter().map(Piece::target).collect();
    // SAFETY: a resident segment is mapped writable and populated for as long as it is borrowed here, and
    // locked: nobody who keeps to the pool's protocol has it open or mapped.
    unsafe { clear(workers, &targets, request, control) }
}
