//! From the command line to a request.

use std::path::PathBuf;

use prezero_memory::{MemorySpec, Request};

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
        threads: populate.threads,
        ..Request::default()
    })
}

fn resolved(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}
