//! Too few free hugepages, in numbers, and what else would do.

use std::fmt;

use prezero_host::{IdSet, PageSize};

use crate::policy::{NodeChoice, Policy};
use crate::size::ByteSize;

/// Too few free hugepages: how many, of which size, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The page size of the pool.
    pub page: PageSize,
    /// The node whose pool is short, or `None` for the whole host.
    pub node: Option<u32>,
    /// Pages needed, by all zones that are bound to the node.
    pub needed: u64,
    /// How many zones need them.
    pub zones: usize,
    /// Pages available: free and not promised to anybody.
    pub available: u64,
    /// Pages in the pool, free or not.
    pub total: u64,
    /// Another node that has enough for the zone that did not fit.
    pub elsewhere: Option<(u32, u64)>,
    /// Other policies under which the host has enough for that zone.
    pub choices: Vec<NodeChoice>,
    /// Bytes of ordinary memory that pages could be made of (MemAvailable), if known.
    pub memory: Option<u64>,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "Node {node}")?,
            None => write!(f, "The host")?,
        }
        write!(f, " needs {} pages of {}", self.needed, self.page)?;
        if self.zones > 1 {
            write!(f, " for {} zones", self.zones)?;
        }
        write!(f, ", has {} free, ", self.available)?;
        write_short(f, self.short(), self.page)?;
        match self.elsewhere {
            Some((node, free)) => write!(f, "; node {node} has {free} free"),
            None => Ok(()),
        }
    }
}

impl Shortage {
    /// Pages missing.
    #[must_use]
    pub fn short(&self) -> u64 {
        self.needed.saturating_sub(self.available)
    }

    pub(crate) fn fix(&self) -> String {
        let elsewhere = self.elsewhere.map(|(node, _)| NodeChoice::bind(node));
        let offers = elsewhere.iter().chain(&self.choices);
        let offers = offers.map(NodeChoice::to_string).collect();
        let total = self.total.saturating_add(self.short());
        let grow = grow(self.page, self.node, total);
        advice(
            offers,
            self.page,
            (self.short(), self.available, self.memory),
            &grow,
        )
    }
}

/// What one of several nodes is short of, or has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePages {
    /// The node.
    pub node: u32,
    /// Pages needed there, where the policy says how many.
    pub needed: Option<u64>,
    /// Pages available there.
    pub available: u64,
    /// Pages in its pool, free or not.
    pub total: u64,
}

impl NodePages {
    fn short(&self) -> u64 {
        self.needed.unwrap_or(0).saturating_sub(self.available)
    }
}

/// Too few free hugepages on the nodes that share one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesShortage {
    /// The page size of the pools.
    pub page: PageSize,
    /// How the nodes share it: [`Policy::Bind`] or [`Policy::Interleave`].
    pub policy: Policy,
    /// Pages needed in all.
    pub needed: u64,
    /// Pages available on the nodes in all.
    pub available: u64,
    /// The nodes asked for.
    pub nodes: Vec<NodePages>,
    /// Other policies under which the host has enough.
    pub choices: Vec<NodeChoice>,
    /// Bytes of ordinary memory that pages could be made of (MemAvailable), if known.
    pub memory: Option<u64>,
}

impl fmt::Display for NodesShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, page) = (self.needed, self.page);
        let names: IdSet = self.nodes.iter().map(|node| node.node).collect();
        if self.policy == Policy::Interleave {
            write!(
                f,
                "Interleaving {needed} pages of {page} over nodes {names}"
            )?;
            let short = self.nodes.iter().filter(|node| node.short() > 0);
            for (n, node) in short.enumerate() {
                let comma = if n == 0 { ": " } else { "; " };
                let (needed, free) = (node.needed.unwrap_or(0), node.available);
                write!(
                    f,
                    "{comma}node {} needs {needed}, has {free} free, ",
                    node.node
                )?;
                write_short(f, node.short(), page)?;
            }
            return Ok(());
        }
        write!(
            f,
            "Nodes {names} need {needed} pages of {page}, have {} free (",
            self.available
        )?;
        for (n, node) in self.nodes.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{} on node {}", node.available, node.node)?;
        }
        f.write_str("), ")?;
        write_short(f, self.short(), page)
    }
}

impl NodesShortage {
    /// Pages missing, on all nodes that are short.
    #[must_use]
    pub fn short(&self) -> u64 {
        match self.policy {
            Policy::Interleave => self.nodes.iter().map(NodePages::short).sum(),
            _ => self.needed.saturating_sub(self.available),
        }
    }

    pub(crate) fn fix(&self) -> String {
        let offers: Vec<String> = self.choices.iter().map(NodeChoice::to_string).collect();
        let short = self.nodes.iter().filter(|node| node.short() > 0);
        let mut totals: Vec<(u32, u64)> = short
            .map(|node| (node.node, node.total.saturating_add(node.short())))
            .collect();
        if totals.is_empty()
            && let Some(first) = self.nodes.first()
        {
            totals.push((first.node, first.total.saturating_add(self.short())));
        }
        let grow: Vec<String> = totals
            .into_iter()
            .map(|(node, total)| grow(self.page, Some(node), total))
            .collect();
        let pages = (self.short(), self.available, self.memory);
        advice(offers, self.page, pages, &grow.join("; "))
    }
}

/// "short by 266 (532 MiB)".
fn write_short(f: &mut fmt::Formatter<'_>, pages: u64, page: PageSize) -> fmt::Result {
    let bytes = ByteSize(pages.saturating_mul(page.bytes()));
    write!(f, "short by {pages} ({bytes})")
}

/// The command that makes a pool of `total` pages.
fn grow(page: PageSize, node: Option<u32>, total: u64) -> String {
    let kib = page.bytes() / 1024;
    let dir = match node {
        Some(node) => format!("/sys/devices/system/node/node{node}/hugepages"),
        None => "/sys/kernel/mm/hugepages".to_owned(),
    };
    format!("echo {total} | sudo tee {dir}/hugepages-{kib}kB/nr_hugepages")
}

/// What can be typed: another choice of nodes, and either the command that adds pages or, where the
/// host has no memory for them, a size that it has enough for.
fn advice(
    offers: Vec<String>,
    page: PageSize,
    (short, available, memory): (u64, u64, Option<u64>),
    grow: &str,
) -> String {
    let offers = offers.join(", or ");
    let missing = short.saturating_mul(page.bytes());
    if let Some(memory) = memory.filter(|memory| missing > *memory) {
        let most = available.saturating_add(memory >> page.shift());
        let size = ByteSize(most.saturating_mul(page.bytes())).to_spec();
        return match offers.is_empty() {
            true => format!("size={size} or less: this host has no memory for more pages"),
            false => format!("{offers}, or size={size} or less"),
        };
    }
    match offers.is_empty() {
        true => grow.to_owned(),
        false => format!("{offers}, or: {grow}"),
    }
}
