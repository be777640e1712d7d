//! `prezero run` from the outside: exit codes, the JSON document, messages, and what it leaves behind.
//!
//! Every run that may take hugepages holds a guard; every other one says `hugepages=off`.

mod command;
mod contract;
mod guest;
mod hugepages;
mod json;
mod limits;
mod output;
mod private_dev;
mod refusals;
mod signals;
mod sys;
mod user;
