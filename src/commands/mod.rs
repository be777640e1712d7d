//! The commands.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod pool_place;
mod pools;
mod request;
pub(crate) mod run;
mod saved;
mod segments;
mod stall;
