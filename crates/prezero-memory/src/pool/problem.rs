//! What is in a pool's directory and is left alone.

use std::fmt;
use std::path::PathBuf;

use prezero_host::PageSize;
use rustix::fs::{FileType, Stat};

use super::name::{SegmentName, State};
use crate::size::ByteSize;

/// A file or directory that is not used, not destroyed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong with it.
    pub kind: ProblemKind,
}

/// Why something in a pool's directory is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Not a name that prezero gives.
    UnknownName,
    /// A link, a directory, a device: no regular file.
    NotAFile,
    /// Another user's.
    Owner {
        /// That user.
        uid: u32,
        /// This one.
        user: u32,
    },
    /// On another file system, mounted over a part of the pool.
    OtherMount,
    /// A directory that others may use.
    Open {
        /// Its permission bits.
        mode: u32,
    },
    /// The directory of a node that this host does not have.
    NoSuchNode {
        /// Which.
        node: u32,
    },
    /// A file that others may use, or this user not.
    Mode {
        /// Its permission bits, which should be 0600.
        mode: u32,
    },
    /// The inode has other names as well, inside or outside of the pool.
    Linked {
        /// How many names it has.
        names: u64,
    },
    /// Two names with one id: whichever is right, the other is not.
    SameId {
        /// Another one.
        other: PathBuf,
    },
    /// Not as long as its name says.
    Length {
        /// Bytes as the name says.
        named: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// Pages are missing: a guest's balloon gave them back, or an exchange was killed. More than there can be
    /// are counted by kernels before 6.1 that took a poisoned page out of the file.
    Holes {
        /// Bytes it should have.
        bytes: u64,
        /// Bytes that are there.
        present: u64,
    },
    /// It cannot be looked at.
    Unreadable {
        /// The errno.
        errno: i32,
    },
}

impl ProblemKind {
    /// Whether it is one of our segments that lost a part of itself.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        matches!(self, Self::Length { .. } | Self::Holes { .. })
    }

    /// Whether a scrub makes it whole again: nothing can be lost of a dirty segment.
    pub(super) fn is_torn(&self, state: State) -> bool {
        let holes = matches!(self, Self::Holes { bytes, present } if present < bytes);
        holes && state == State::Dirty
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.path.display())?;
        match &self.kind {
            ProblemKind::UnknownName => f.write_str("is not a name of a pool's"),
            ProblemKind::NotAFile => f.write_str("is not a regular file"),
            ProblemKind::Owner { uid, user } => write!(f, "belongs to user {uid}, not {user}"),
            ProblemKind::OtherMount => f.write_str("is on another mount"),
            ProblemKind::Open { mode } => write!(f, "is open to others (mode {mode:04o})"),
            ProblemKind::NoSuchNode { node } => {
                write!(f, "is for node {node}, which this host does not have")
            }
            ProblemKind::Mode { mode } => write!(f, "has mode {mode:04o}, not 0600"),
            ProblemKind::Linked { names } => write!(f, "is a file with {names} names"),
            ProblemKind::SameId { other } => write!(f, "has the id of {}", other.display()),
            ProblemKind::Length { found, .. } => write!(f, "is {} long", ByteSize(*found)),
            ProblemKind::Holes { bytes, present } if present > bytes => {
                let (there, all) = (ByteSize(*present), ByteSize(*bytes));
                write!(
                    f,
                    "counts {there} in its {all}: the kernel took a poisoned page out of it"
                )
            }
            ProblemKind::Holes { bytes, present } => {
                let (there, all) = (ByteSize(*present), ByteSize(*bytes));
                write!(f, "has {there} of its {all}: pages were given back")
            }
            ProblemKind::Unreadable { errno } => {
                let why = std::io::Error::from_raw_os_error(*errno);
                write!(f, "cannot be looked at: {why}")
            }
        }
    }
}

impl Problem {
    /// What to type, where that is all it takes.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        let path = self.path.display();
        match self.kind {
            ProblemKind::Open { .. } => Some(format!("chmod 700 {path}")),
            ProblemKind::Mode { .. } => Some(format!("chmod 600 {path}")),
            ProblemKind::Owner { user, .. } => {
                Some(format!("sudo chown {user} {path}, or another directory"))
            }
            ProblemKind::Holes { bytes, present } if present < bytes => {
                let pool = self.path.ancestors().nth(2)?;
                let dirty = self.path.extension() == Some(State::Dirty.name().as_ref());
                dirty.then(|| format!("prezero pool scrub {}", pool.display()))
            }
            _ => None,
        }
    }
}

/// What a pool's files have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned {
    pub(super) device: u64,
    pub(super) user: u32,
    pub(super) page: PageSize,
}

impl Owned {
    /// Whether a directory is one that only this user can change.
    pub(super) fn check_directory(self, facts: &Stat) -> Result<(), ProblemKind> {
        self.check_owner(facts)?;
        let mode = facts.st_mode & 0o7777;
        match mode & 0o077 {
            0 => Ok(()),
            _ => Err(ProblemKind::Open { mode }),
        }
    }

    fn check_owner(self, facts: &Stat) -> Result<(), ProblemKind> {
        if facts.st_dev != self.device {
            return Err(ProblemKind::OtherMount);
        }
        let (uid, user) = (facts.st_uid, self.user);
        match uid == user {
            true => Ok(()),
            false => Err(ProblemKind::Owner { uid, user }),
        }
    }

    /// Whether a file is a whole segment of this name.
    pub(super) fn check_segment(self, name: SegmentName, facts: &Stat) -> Result<(), ProblemKind> {
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(ProblemKind::NotAFile);
        }
        self.check_owner(facts)?;
        let mode = facts.st_mode & 0o7777;
        if mode != 0o600 {
            return Err(ProblemKind::Mode { mode });
        }
        #[allow(clippy::useless_conversion)] // 32 bits on some machines
        let names = u64::from(facts.st_nlink);
        if names != 1 {
            return Err(ProblemKind::Linked { names });
        }
        let found = u64::try_from(facts.st_size).unwrap_or(0);
        if found != name.bytes {
            let named = name.bytes;
            return Err(ProblemKind::Length { named, found });
        }
        // hugetlbfs counts the pages that exist, in units of 512 bytes (fs/hugetlbfs/inode.c).
        let present = u64::try_from(facts.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512);
        if present != name.bytes {
            let bytes = name.bytes;
            return Err(ProblemKind::Holes { bytes, present });
        }
        Ok(())
    }
}
