//! The results of the commands as data. Text and JSON are views of them.

pub(crate) mod bench;
pub(crate) mod bench_clear;
pub(crate) mod bench_compare;
pub(crate) mod bench_mmap;
pub(crate) mod bench_neighbour;
pub(crate) mod bench_vm;
pub(crate) mod boot;
pub(crate) mod calibration;
pub(crate) mod counters;
pub(crate) mod doctor;
pub(crate) mod estimate;
pub(crate) mod facts;
pub(crate) mod machine;
pub(crate) mod own_cost;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod pool_drain;
pub(crate) mod pool_scrub;
pub(crate) mod run;
