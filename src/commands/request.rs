//! From the command line to a request.

use std::path::{Path, PathBuf};

use prezero_memory::{Class, MemorySpec, Request};

use crate::cli::{MemoryArgs, PopulateArgs};
use crate::failure::Failure;

/// What is asked for. Paths that exist are resolved, so that a link to a hugetlbfs mount is one.
pub(crate) fn request(memory: &MemoryArgs, populate: &PopulateArgs) -> Result<Request, Failure> {
    let zones: Result<Vec<MemorySpec>, _> = memory.specs().map(str::parse).collect();
    let mut zones = zones?;
    for zone in &mut zones {
        zone.path = zone.path.take().map(resolved);
    }
    Ok(Request {
        zones,
        prealloc: populate.prealloc.into(),
        clear: populate.clear.into(),
        threads: populate.threads,
        ..Request::default()
    })
}

pub(super) fn resolved(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}

/// Whether there is a host below `root`: this one, or a recorded one.
pub(crate) fn check_root(root: &Path) -> Result<(), Failure> {
    if root.join("proc").is_dir() {
        return Ok(());
    }
    Err(Failure {
        class: Class::Usage,
        message: format!("There is no recorded host at {}", root.display()),
        fix: Some("prezero doctor --record DIR".to_owned()),
    })
}
