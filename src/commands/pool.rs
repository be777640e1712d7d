//! `prezero pool`: hugepages that are kept from guest to guest.

mod create;
mod drain;
mod scrub;
mod status;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use prezero_host::Host;

use super::pool_place::dir_or_default;
use crate::cli::{PoolArgs, PoolCommand};
use crate::failure::Failure;

/// Does what was asked for.
pub(crate) fn main(args: &PoolArgs) -> ExitCode {
    match &args.command {
        PoolCommand::Create(args) => create::main(args),
        PoolCommand::Status(args) => status::main(args),
        PoolCommand::Scrub(args) => scrub::main(args),
        PoolCommand::Drain(args) => drain::main(args),
        PoolCommand::Destroy(args) => drain::destroy(args),
    }
}

/// The pool that is meant, and the host as it is now.
fn place(dir: Option<&Path>) -> Result<(PathBuf, Host), Failure> {
    let host = Host::probe();
    Ok((dir_or_default(dir, &host, None)?, host))
}
