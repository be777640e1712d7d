//! A host whose kernel behaves as `set_max_huge_pages` in mm/hugetlb.c does, with as many nodes as
//! a test wants.

use std::cell::{Cell, RefCell};

use prezero_host::{Host, HugepagePool, Node, NodePool, PageSize};

use super::error::GrowError;
use super::kernel::{Effort, Kernel};

/// A host with nodes 0, 1, … that have so many free 2 MiB pages, and so many reserved.
pub(super) fn host(free: &[u64], reserved: u64) -> Host {
    let nodes: Vec<ModelNode> = free.iter().map(|free| ModelNode::new(*free, 0)).collect();
    Model::new(&nodes, reserved).facts()
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ModelNode {
    pub(super) total: u64,
    pub(super) used: u64,
    pub(super) surplus: u64,
    /// Pages the kernel can still find there.
    pub(super) memory: u64,
}

impl ModelNode {
    pub(super) fn new(total: u64, memory: u64) -> Self {
        Self {
            total,
            memory,
            ..Self::default()
        }
    }

    fn persistent(&self) -> u64 {
        self.total - self.surplus
    }
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) nodes: RefCell<Vec<ModelNode>>,
    pub(super) reserved: u64,
    /// Pages that a write adds before a signal ends it.
    pub(super) per_write: Cell<u64>,
    /// Pages that an operator adds to node 0 just after the next write.
    pub(super) operator: Cell<u64>,
    /// Pages that compaction, and then a dropped page cache, make available on node 0.
    pub(super) hidden: Cell<(u64, u64)>,
    pub(super) efforts: RefCell<Vec<Effort>>,
}

impl Model {
    pub(super) fn new(nodes: &[ModelNode], reserved: u64) -> Self {
        Self {
            nodes: RefCell::new(nodes.to_vec()),
            reserved,
            per_write: Cell::new(u64::MAX),
            operator: Cell::default(),
            hidden: Cell::default(),
            efforts: RefCell::default(),
        }
    }

    /// The persistent pages of each node.
    pub(super) fn sizes(&self) -> Vec<u64> {
        self.nodes
            .borrow()
            .iter()
            .map(ModelNode::persistent)
            .collect()
    }
}

impl Kernel for Model {
    fn facts(&self) -> Host {
        let nodes = self.nodes.borrow();
        let sum = |of: fn(&ModelNode) -> u64| nodes.iter().map(of).sum();
        let page_size = PageSize::HUGE_2M;
        Host {
            pools: vec![HugepagePool {
                page_size,
                total: sum(|node| node.total),
                free: sum(|node| node.total - node.used),
                reserved: self.reserved,
                surplus: sum(|node| node.surplus),
                overcommit: 0,
            }],
            nodes: (0..)
                .zip(nodes.iter())
                .map(|(id, node)| Node {
                    id,
                    pools: vec![NodePool {
                        page_size,
                        total: node.total,
                        free: node.total - node.used,
                        surplus: node.surplus,
                    }],
                    ..Node::default()
                })
                .collect(),
            mem_available: Some(1 << 40),
            ..Host::default()
        }
    }

    fn set(&self, _: PageSize, node: Option<u32>, pages: u64) -> Result<(), GrowError> {
        let mut all = self.nodes.borrow_mut();
        let allowed = match node {
            Some(node) => node as usize..node as usize + 1,
            None => 0..all.len(),
        };
        let nodes = &mut all[allowed];
        let size = |nodes: &[ModelNode]| nodes.iter().map(ModelNode::persistent).sum::<u64>();
        // Round and round, one page each, as for_each_node_mask_to_alloc does.
        let step = |nodes: &mut [ModelNode],
                    by: &dyn Fn(&mut ModelNode) -> bool,
                    until: &dyn Fn(u64) -> bool| {
            let mut moved = true;
            while moved && !until(size(nodes)) {
                moved = false;
                for n in 0..nodes.len() {
                    moved |= !until(size(nodes)) && by(&mut nodes[n]);
                }
            }
        };
        let budget = Cell::new(self.per_write.get());
        step(
            nodes,
            &|node| take(node.surplus > 0, || node.surplus -= 1),
            &|size| size >= pages,
        );
        let add = |node: &mut ModelNode| {
            take(node.memory > 0 && budget.get() > 0, || {
                budget.set(budget.get() - 1);
                node.memory -= 1;
                node.total += 1;
            })
        };
        step(nodes, &add, &|size| size >= pages);
        let free = |node: &mut ModelNode| {
            take(node.total > node.used, || {
                node.total -= 1;
                node.memory += 1;
            })
        };
        step(nodes, &free, &|size| size <= pages);
        step(
            nodes,
            &|node| take(node.surplus < node.total, || node.surplus += 1),
            &|size| size <= pages,
        );
        all[0].total += self.operator.take();
        Ok(())
    }

    fn make_room(&self, effort: Effort) {
        self.efforts.borrow_mut().push(effort);
        let (compacted, dropped) = self.hidden.get();
        let found = match effort {
            Effort::DropCaches => dropped,
            _ => compacted,
        };
        self.nodes.borrow_mut()[0].memory += found;
    }
}

fn take(possible: bool, change: impl FnOnce()) -> bool {
    if possible {
        change();
    }
    possible
}
