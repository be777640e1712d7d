//! The commands.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod plan;
#[allow(dead_code, reason = "for the commands that use a pool")]
pub(crate) mod pool_place;
mod pools;
mod request;
pub(crate) mod run;
