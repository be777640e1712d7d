//! Pages that a killed `run --reserve` left in the pools.

use std::path::Path;

use prezero_memory::{Leftover, leftovers};

use super::super::pools::STATE_DIR;
use crate::report::doctor::Finding;

const NAME: &str = "reserved";

pub(super) fn check() -> Vec<Finding> {
    let found = match leftovers(Path::new(STATE_DIR)) {
        Ok(found) => found,
        Err(error) => {
            let message = format!("What killed runs left cannot be read from {STATE_DIR}: {error}");
            return vec![Finding::warning(
                NAME,
                message,
                format!("sudo ls -l {STATE_DIR}"),
            )];
        }
    };
    if found.is_empty() {
        return vec![Finding::ok(
            NAME,
            "No killed run has left pages of --reserve in the pools",
        )];
    }
    found
        .iter()
        .map(|leftover| Finding::warning(NAME, describe(leftover), leftover.fix()))
        .collect()
}

fn describe(leftover: &Leftover) -> String {
    let (pid, journal) = (leftover.pid, leftover.journal.display());
    let pools = leftover.pools.iter().map(|left| {
        let node = left
            .node
            .map_or(String::new(), |node| format!(" on node {node}"));
        let at_most = if left.at_most { "at most " } else { "" };
        format!("{at_most}{} pages of {}{node}", left.pages, left.page)
    });
    let pools: Vec<String> = pools.collect();
    match pools.is_empty() {
        true => format!("{journal} of process {pid} is not understood"),
        false => format!(
            "The killed process {pid} left {} in the pools ({journal})",
            pools.join(", ")
        ),
    }
}
