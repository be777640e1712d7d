//! How spans are cleared: with which method, and how much at once.

use std::error::Error;
use std::fmt;

use crate::Method;

/// Chunks are multiples of this many bytes: the smallest page.
pub(crate) const PAGE: usize = 4096;

/// How spans are cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clearing {
    method: Method,
    chunk: Option<usize>,
}

impl Clearing {
    /// With `method`, the whole span at once.
    #[must_use]
    pub fn new(method: Method) -> Self {
        Self {
            method,
            chunk: None,
        }
    }

    /// The same with at most `bytes` covered by one string instruction or loop.
    ///
    /// A string instruction that knows how much is coming can do better than one that sees a page at a time
    /// ("x86/clear_huge_page: multi-page clearing", 2023): 4096 is what kernels before Linux 7.0 do.
    ///
    /// # Errors
    ///
    /// When `bytes` is 0 or not a multiple of 4096.
    pub fn in_chunks(self, bytes: usize) -> Result<Self, ChunkError> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE) {
            return Err(ChunkError { bytes });
        }
        Ok(Self {
            chunk: Some(bytes),
            ..self
        })
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// The bytes covered at once, where they are bounded.
    #[must_use]
    pub fn chunk(&self) -> Option<usize> {
        self.chunk
    }
}

/// A chunk that is no positive multiple of 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkError {
    /// Its size in bytes.
    pub bytes: usize,
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes;
        write!(
            f,
            "A chunk of {bytes} bytes is no positive multiple of {PAGE}"
        )
    }
}

impl Error for ChunkError {}
