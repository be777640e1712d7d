//! Measuring: samples in an order that is fair to every row, what they come to, and what to say about
//! them. Nothing here prints, and all but [`clear`] and [`vm`] knows nothing about memory.

pub(crate) mod clear;
pub(crate) mod compare;
pub(crate) mod counters;
pub(crate) mod cpus;
pub(crate) mod estimate;
pub(crate) mod machine;
pub(crate) mod mmap;
pub(crate) mod neighbour;
pub(crate) mod own_cost;
pub(crate) mod repeat;
pub(crate) mod rounds;
pub(crate) mod stats;
mod sys;
pub(crate) mod vm;
pub(crate) mod warning;
