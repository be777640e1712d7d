//! What kind of error it is, and what to type.

use super::super::scrub::Left;
use super::PoolError;
use crate::class::Class;
use crate::plan::Shortage;
use crate::size::ByteSize;

impl PoolError {
    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Missing(_)
            | Self::NodeDirectory(_)
            | Self::NotHugetlbfs { .. }
            | Self::PageSize { .. }
            | Self::NotWholeSegments { .. }
            | Self::Fewer { .. }
            | Self::Cleared(_) => Class::Usage,
            Self::Untrusted(_) => Class::Host,
            Self::Node(error) => error.class(),
            Self::Short(_)
            | Self::Limit(_)
            | Self::NoSegment { .. }
            | Self::Busy { .. }
            | Self::NotExchanged { .. } => Class::Shortage,
            Self::NotCleaned(left) => match left.left {
                Left::Untouchable { .. } | Left::Refused { .. } => Class::Internal,
                _ => Class::Shortage,
            },
            Self::Start(error) => error.class(),
            Self::Populate(error) => error.class(),
            Self::Clear(error) => error.class(),
            Self::Map { source, .. } | Self::Io { source, .. } => match source.raw_os_error() {
                Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC) => Class::Shortage,
                Some(libc::ENOTDIR | libc::ELOOP) => Class::Usage,
                Some(
                    libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EROFS | libc::EOPNOTSUPP,
                ) => Class::Host,
                _ => Class::Internal,
            },
        }
    }

    /// What to type.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        let size = |bytes: u64| ByteSize(bytes).to_spec();
        Some(match self {
            Self::Missing(path) => format!("prezero pool create {} --size 16G", path.display()),
            Self::NodeDirectory(path) => match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.display().to_string(),
                _ => ".".to_owned(),
            },
            Self::NotHugetlbfs { mounts, .. } => match mounts.first() {
                Some(mount) => mount.join("prezero").display().to_string(),
                None => {
                    "sudo mkdir -p /dev/hugepages && sudo mount -t hugetlbfs none /dev/hugepages"
                        .to_owned()
                }
            },
            Self::PageSize { page, .. } => {
                format!(
                    "--page {}, or a directory on a mount of the other size",
                    size(page.bytes())
                )
            }
            Self::Untrusted(problem) => return problem.fix(),
            Self::NotWholeSegments { bytes, segment } => {
                let segment = segment.bytes().max(1);
                let below = bytes - bytes % segment;
                let above = size(below.saturating_add(segment));
                match below {
                    0 => format!("--size {above}"),
                    _ => format!("--size {} or {above}", size(below)),
                }
            }
            // Without a length, drain could take dirty segments of another one.
            Self::Fewer {
                pool,
                segment,
                there,
                asked,
            } => format!(
                "prezero pool drain {} --size {} --segment {}",
                pool.display(),
                size(there.saturating_sub(*asked)),
                size(segment.bytes())
            ),
            Self::Cleared(pool) => format!("prezero pool drain {}", pool.display()),
            Self::NotExchanged { pool, .. } => format!("prezero pool scrub {}", pool.display()),
            Self::Node(error) => return error.fix(),
            Self::Short(short) => {
                let fixes: Vec<String> = short.iter().map(Shortage::fix).collect();
                fixes.join("; ")
            }
            Self::Limit(hit) => hit.fix(),
            Self::NoSegment {
                pool, incomplete, ..
            } if *incomplete > 0 => format!("prezero pool scrub {}", pool.display()),
            Self::NoSegment {
                pool, bytes, node, ..
            } => format!(
                "prezero pool create {} --size {} --segment {}{}",
                pool.display(),
                size(*bytes),
                size(*bytes),
                on_node(*node)
            ),
            Self::Busy {
                pool,
                bytes,
                node,
                segments,
                ..
            } => format!(
                "prezero pool create {} --size {} --segment {}{}",
                pool.display(),
                size(bytes.saturating_mul(segments + 1)),
                size(*bytes),
                on_node(*node)
            ),
            Self::NotCleaned(left) => {
                // DIR/node0/SEGMENT
                let pool = left.path.ancestors().nth(2)?.display().to_string();
                format!("prezero pool status {pool}")
            }
            Self::Start(error) => return error.fix(),
            Self::Populate(error) => return error.fix(),
            Self::Clear(error) => return error.fix(),
            Self::Map { source, .. } | Self::Io { source, .. } => match source.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => "ulimit -n 4096".to_owned(),
                Some(libc::ENOMEM) => "ulimit -v unlimited".to_owned(),
                Some(libc::EACCES | libc::EPERM) => denied(self)?,
                _ => return None,
            },
        })
    }
}

fn on_node(node: Option<u32>) -> String {
    node.map_or(String::new(), |node| format!(" --node {node}"))
}

/// What lets this user have a pool, or shows whose it is.
fn denied(error: &PoolError) -> Option<String> {
    let PoolError::Io { what, path, .. } = error else {
        return None;
    };
    let path = path.display();
    Some(match *what {
        // The mount's root belongs to whoever mounted it.
        "create" => format!("sudo install -d -m 700 -o {} {path}", crate::sys::user()),
        _ => format!("sudo ls -ld {path}"),
    })
}
