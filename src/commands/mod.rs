//! The commands.

pub(crate) mod run;
