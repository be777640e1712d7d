//! The commands.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod plan;
mod pools;
mod request;
pub(crate) mod run;
