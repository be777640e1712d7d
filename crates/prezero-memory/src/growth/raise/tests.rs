use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

use super::super::journal::Balance;
use super::super::model::{Model, ModelNode};
use super::*;
use crate::class::Class;
use crate::control::Cancel;
use proptest::prelude::*;
use tempfile::TempDir;

const PAGE: PageSize = PageSize::HUGE_2M;

fn need(node: impl Into<Option<u32>>, pages: u64) -> PoolNeed {
    PoolNeed {
        page: PAGE,
        node: node.into(),
        pages,
    }
}

/// A growth of a model, with its journal.
struct Run {
    _dir: TempDir,
    journal: Journal,
    result: Result<Vec<Grown>, GrowError>,
}

fn raised(kernel: &Model, needs: &[PoolNeed]) -> Run {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut journal = Journal::create(dir.path()).expect("writable");
    let result = raise(kernel, needs, &Control::default(), &mut journal);
    Run {
        _dir: dir,
        journal,
        result,
    }
}

impl Run {
    fn give_back(mut self, kernel: &Model) {
        lower(kernel, &mut self.journal).expect("given back");
        assert_eq!(self.journal.balance().shares(), []);
    }

    fn grown(&self) -> Grown {
        let grown = self.result.as_ref().expect("enough");
        assert_eq!(grown.len(), 1);
        grown[0]
    }
}

#[test]
fn pages_go_back_to_the_nodes_they_came_from() {
    let kernel = Model::new(&[ModelNode::new(5, 100), ModelNode::new(40, 3)], 0);
    let run = raised(&kernel, &[need(None, 60)]);
    assert_eq!((run.grown().asked, run.grown().got), (15, 15));
    assert_eq!(kernel.sizes(), [17, 43], "node 1 has no more");
    assert_eq!(
        run.journal.balance().shares(),
        [(PAGE, Some(0), 12), (PAGE, Some(1), 3)]
    );
    // An operator moves the pool about meanwhile.
    kernel.set(PAGE, Some(0), 27).expect("ten more");
    kernel.set(PAGE, Some(1), 1).expect("nearly none");
    run.give_back(&kernel);
    assert_eq!(kernel.sizes(), [15, 0]);
}

#[test]
fn a_node_s_pages_are_added_on_that_node() {
    let kernel = Model::new(&[ModelNode::new(50, 100), ModelNode::new(5, 100)], 0);
    let run = raised(&kernel, &[need(1, 30)]);
    assert_eq!((run.grown().node, run.grown().got), (Some(1), 25));
    assert_eq!(kernel.sizes(), [50, 30]);
    run.give_back(&kernel);
    assert_eq!(kernel.sizes(), [50, 5]);
}

#[test]
fn a_kernel_that_finds_too_few_is_reported_with_numbers_and_undone() {
    let kernel = Model::new(&[ModelNode::new(10, 6479)], 0);
    let mut run = raised(&kernel, &[need(None, 8202)]);
    let error = run.result.as_ref().expect_err("6479 of 8192");
    assert_eq!(error.class(), Class::Shortage);
    assert_eq!(
        error.to_string(),
        "Asked the kernel for 8192 more pages of 2 MiB, got 6479, short by 1713"
    );
    assert_eq!(
        error.fix().as_deref(),
        Some(
            "echo 1 | sudo tee /proc/sys/vm/compact_memory and run it again, or boot with hugepagesz=2M hugepages=8202"
        )
    );
    assert_eq!(
        *kernel.efforts.borrow(),
        [Effort::Compact, Effort::DropCaches]
    );
    lower(&kernel, &mut run.journal).expect("given back");
    assert_eq!(kernel.sizes(), [10]);
}

#[test]
fn caches_are_dropped_only_where_compaction_is_not_enough() {
    for (hidden, efforts, flags) in [
        ((0, 0), vec![], (false, false)),
        ((20, 0), vec![Effort::Compact], (true, false)),
        (
            (5, 15),
            vec![Effort::Compact, Effort::DropCaches],
            (true, true),
        ),
    ] {
        let memory = if hidden == (0, 0) { 30 } else { 10 };
        let kernel = Model::new(&[ModelNode::new(0, memory)], 0);
        kernel.hidden.set(hidden);
        let run = raised(&kernel, &[need(None, 30)]);
        assert_eq!(run.grown().got, 30);
        assert_eq!((run.grown().compacted, run.grown().dropped_caches), flags);
        assert_eq!(*kernel.efforts.borrow(), efforts);
        run.give_back(&kernel);
        assert_eq!(kernel.sizes(), [0]);
    }
}

#[test]
fn a_write_that_a_signal_ends_is_repeated() {
    let kernel = Model::new(&[ModelNode::new(0, 100)], 0);
    kernel.per_write.set(7);
    let run = raised(&kernel, &[need(None, 30)]);
    assert_eq!(run.grown().got, 30);
    assert!(!run.grown().compacted);
    run.give_back(&kernel);
    assert_eq!(kernel.sizes(), [0]);
}

#[test]
fn surplus_pages_of_others_are_surplus_again_afterwards() {
    // Ten pages in use, four of them above the pool's size.
    let node = ModelNode {
        total: 10,
        used: 10,
        surplus: 4,
        memory: 100,
    };
    let kernel = Model::new(&[node], 0);
    let run = raised(&kernel, &[need(None, 8)]);
    assert_eq!((run.grown().asked, run.grown().got), (8, 8));
    assert_eq!(kernel.sizes(), [18]);
    run.give_back(&kernel);
    assert_eq!(kernel.sizes(), [6]);
    assert_eq!(kernel.nodes.borrow()[0].surplus, 4);
}

#[test]
fn pages_still_mapped_become_surplus() {
    let kernel = Model::new(&[ModelNode::new(2, 100)], 0);
    let run = raised(&kernel, &[need(None, 8)]);
    kernel.nodes.borrow_mut()[0].used = 8;
    run.give_back(&kernel);
    assert_eq!(kernel.sizes(), [2]);
    assert_eq!(kernel.nodes.borrow()[0].surplus, 6);
}

#[test]
fn pages_that_an_operator_adds_during_a_write_stay() {
    let kernel = Model::new(&[ModelNode::new(2, 100)], 0);
    kernel.operator.set(7);
    let run = raised(&kernel, &[need(None, 10)]);
    assert_eq!(kernel.sizes(), [17]);
    run.give_back(&kernel);
    assert_eq!(kernel.sizes(), [9]);
}

/// A kernel that looks into the journal before it changes a pool.
#[derive(Debug)]
struct Witness {
    kernel: Model,
    journal: PathBuf,
    seen: RefCell<Vec<(Option<u32>, i64)>>,
}

impl Kernel for Witness {
    fn facts(&self) -> Host {
        self.kernel.facts()
    }

    fn set(&self, page: PageSize, node: Option<u32>, pages: u64) -> Result<(), GrowError> {
        let text = fs::read_to_string(&self.journal).expect("readable");
        let pending = Balance::parse(&text).expect("a journal").pending;
        let pending = pending.iter().map(|change| (change.node, change.pages));
        self.seen.borrow_mut().extend(pending);
        self.kernel.set(page, node, pages)
    }

    fn make_room(&self, effort: Effort) {
        self.kernel.make_room(effort);
    }
}

#[test]
fn every_change_is_on_file_before_it_is_made() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut journal = Journal::create(dir.path()).expect("writable");
    let kernel = Witness {
        kernel: Model::new(&[ModelNode::new(0, 9), ModelNode::new(0, 9)], 0),
        journal: journal.path.clone(),
        seen: RefCell::default(),
    };
    let control = Control::default();
    raise(
        &kernel,
        &[need(None, 8), need(1, 5)],
        &control,
        &mut journal,
    )
    .expect("13 pages");
    lower(&kernel, &mut journal).expect("given back");
    let added = [(None, 8), (Some(1), 5)];
    let given_back = [(Some(0), -4), (Some(1), -9)];
    assert_eq!(*kernel.seen.borrow(), [added, given_back].concat());
}

#[test]
fn a_cancelled_growth_has_added_nothing_more() {
    let kernel = Model::new(&[ModelNode::new(0, 100)], 0);
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut journal = Journal::create(dir.path()).expect("writable");
    let cancel = Cancel::new();
    cancel.cancel();
    let control = Control {
        cancel: Some(&cancel),
        ..Control::default()
    };
    let error = raise(&kernel, &[need(None, 8)], &control, &mut journal).expect_err("cancelled");
    assert_eq!(error.class(), Class::Stopped);
    assert_eq!(
        error.to_string(),
        "Cancelled while growing the hugepage pools"
    );
    assert_eq!(kernel.sizes(), [0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_growth_is_undone_exactly(
        nodes in prop::collection::vec((0_u64..40, 0_u64..40, 0_u64..40, 0_u64..60), 1..4),
        needs in prop::collection::vec((prop::option::of(0_u32..3), 0_u64..60), 1..4),
        per_write in 1_u64..100,
    ) {
        let node = |(total, used, surplus, memory): (u64, u64, u64, u64)| {
            // A page that is freed while there are surplus pages leaves the pool.
            let used = if surplus > 0 { total } else { used.min(total) };
            ModelNode { total, used, surplus: surplus.min(used), memory }
        };
        let nodes: Vec<ModelNode> = nodes.into_iter().map(node).collect();
        let last = nodes.len() - 1;
        let needs: Vec<PoolNeed> = needs
            .into_iter()
            .map(|(node, pages)| need(node.map(|node| node.min(last.try_into().unwrap())), pages))
            .collect();
        let kernel = Model::new(&nodes, 0);
        kernel.per_write.set(per_write);
        let before = kernel.sizes();
        let mut run = raised(&kernel, &needs);
        if run.result.is_ok() {
            prop_assert_eq!(missing(&kernel.facts(), &needs).expect("pools exist"), []);
        }
        lower(&kernel, &mut run.journal).expect("given back");
        prop_assert_eq!(kernel.sizes(), before);
        let total = |nodes: &[ModelNode]| nodes.iter().map(|node| node.total).sum::<u64>();
        prop_assert_eq!(total(&kernel.nodes.borrow()), total(&nodes));
    }
}
