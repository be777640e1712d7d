//! Memory with a pattern in it, so that every byte that is cleared or not cleared shows.

use std::slice;

use crate::Span;
use crate::clearing::PAGE;

#[derive(Clone, Debug)]
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// Pages of a pattern without zeroes, with a guard page of it on each side of what spans may be made of.
#[derive(Debug)]
pub(crate) struct Memory {
    pages: Vec<Page>,
    pattern: Vec<u8>,
    zeroes: Vec<u8>,
}

impl Memory {
    /// `len` bytes between the guards.
    pub(crate) fn new(len: usize) -> Self {
        let pages = len.div_ceil(PAGE) + 2;
        // 251 is prime, so no line looks like its neighbours.
        let period: Vec<u8> = (1..=251).collect();
        let mut pattern = period.repeat((pages * PAGE).div_ceil(period.len()));
        pattern.truncate(pages * PAGE);
        let mut memory = Self {
            pages: vec![Page([0; PAGE]); pages],
            zeroes: vec![0; pattern.len()],
            pattern,
        };
        memory.dirty();
        memory
    }

    /// Puts the pattern back.
    pub(crate) fn dirty(&mut self) {
        for (page, pattern) in self.pages.iter_mut().zip(self.pattern.chunks_exact(PAGE)) {
            page.0.copy_from_slice(pattern);
        }
    }

    /// Address of the first byte after the guard.
    pub(crate) fn addr(&self) -> usize {
        self.pages.as_ptr().addr() + PAGE
    }

    /// A pointer to `offset` bytes after the guard.
    pub(crate) fn at(&mut self, offset: usize) -> *mut u8 {
        self.pages
            .as_mut_ptr()
            .cast::<u8>()
            .wrapping_add(PAGE + offset)
    }

    /// The span of `len` bytes at `offset`.
    pub(crate) fn span(&mut self, offset: usize, len: usize) -> Span<'_> {
        assert!(offset + len + 2 * PAGE <= self.pattern.len());
        // SAFETY: the pages are borrowed for as long as the span lives, and were written to.
        unsafe { Span::new(self.at(offset), len) }.expect("whole lines")
    }

    /// Fails unless exactly the bytes of `cleared`, offsets and lengths in ascending order, are zero.
    #[track_caller]
    pub(crate) fn assert_cleared(&self, cleared: &[(usize, usize)], what: impl Fn() -> String) {
        let mut at = 0;
        for (offset, len) in cleared.iter().copied() {
            self.assert_is(&self.pattern, at, PAGE + offset, &what);
            self.assert_is(&self.zeroes, PAGE + offset, PAGE + offset + len, &what);
            at = PAGE + offset + len;
        }
        self.assert_is(&self.pattern, at, self.pattern.len(), &what);
    }

    #[track_caller]
    fn assert_is(&self, wanted: &[u8], from: usize, to: usize, what: &impl Fn() -> String) {
        // Compared as a whole first: byte by byte, tests without optimisation would take minutes.
        if self.bytes()[from..to] == wanted[from..to] {
            return;
        }
        let wrong = (from..to).find(|at| self.bytes()[*at] != wanted[*at]);
        let wrong = wrong.expect("a difference");
        panic!(
            "{}: byte {} of {}..{} after the guard is {:#x} and not {:#x}",
            what(),
            wrong.cast_signed() - PAGE.cast_signed(),
            from.cast_signed() - PAGE.cast_signed(),
            to.cast_signed() - PAGE.cast_signed(),
            self.bytes()[wrong],
            wanted[wrong]
        );
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the pages are initialised, without padding, and borrowed as long as the slice.
        unsafe { slice::from_raw_parts(self.pages.as_ptr().cast(), self.pattern.len()) }
    }
}
