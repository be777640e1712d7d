//! The standard error of a child, of which the last is kept.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::ioctl_fionbio;

use super::is_passing;
use crate::printable::printable;

/// The last of what a child wrote that is worth repeating, in bytes.
const WORDS: usize = 400;

/// One pipe's.
#[derive(Debug)]
pub(super) struct Words {
    /// None at its end.
    from: Option<PipeReader>,
    last: Vec<u8>,
}

impl Words {
    /// And the end to write to.
    pub(super) fn new() -> io::Result<(Self, PipeWriter)> {
        let (from, to) = io::pipe()?;
        ioctl_fionbio(&from, true)?;
        let last = Vec::new();
        let from = Some(from);
        Ok((Self { from, last }, to))
    }

    /// Where more comes from, until its end.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.from.as_ref().map(AsFd::as_fd)
    }

    /// Takes what is there, as much as most pipes hold: more may come as fast as it is read.
    pub(super) fn read(&mut self) {
        // Characters have at most four bytes, and what goes with them is left out.
        const KEPT: usize = 8 * WORDS;
        let mut buffer = [0; 64 << 10];
        let Some(from) = &mut self.from else {
            return;
        };
        match from.read(&mut buffer) {
            Ok(0) => self.from = None,
            Ok(n) => {
                self.last.extend_from_slice(&buffer[..n]);
                let old = self.last.len().saturating_sub(KEPT);
                self.last.drain(..old);
            }
            Err(error) if is_passing(error.kind()) => {}
            Err(_) => self.from = None,
        }
    }

    /// The end of it, on one line.
    pub(super) fn line(&self) -> String {
        let text = String::from_utf8_lossy(&self.last);
        let lines = text.lines().map(|line| printable(line).trim().to_owned());
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        let text = lines.join(" | ");
        let from = text.len().saturating_sub(WORDS);
        let from = (from..text.len()).find(|n| text.is_char_boundary(*n));
        from.map_or(String::new(), |from| text[from..].to_owned())
    }
}
