//! Progress over work that is done in several calls.

use crate::control::{Control, NodeProgress, Stall};

/// How far each node is, the call at hand not counted.
#[derive(Debug)]
pub(super) struct Stages(Vec<NodeProgress>);

impl Stages {
    /// All of the work, as bytes of nodes; a node may occur often.
    pub(super) fn new(work: impl IntoIterator<Item = (u32, u64)>) -> Self {
        let mut nodes: Vec<NodeProgress> = Vec::new();
        for (node, bytes) in work {
            match nodes.iter_mut().find(|known| known.node == node) {
                Some(known) => known.total += bytes,
                None => nodes.push(NodeProgress {
                    node,
                    done: 0,
                    total: bytes,
                }),
            }
        }
        Self(nodes)
    }

    /// Runs a stage, whose progress and stalls are told as a part of the whole.
    pub(super) fn during<T>(
        &self,
        control: &Control<'_>,
        stage: impl FnOnce(&Control<'_>) -> T,
    ) -> T {
        let progress = |nodes: &[NodeProgress]| {
            if let Some(tell) = control.progress {
                tell(&self.with(nodes));
            }
        };
        let stalled = |stall: &Stall| {
            if let Some(tell) = control.stalled {
                tell(&Stall {
                    nodes: self.with(&stall.nodes),
                    ..stall.clone()
                });
            }
        };
        stage(&Control {
            progress: Some(&progress),
            stalled: Some(&stalled),
            ..*control
        })
    }

    /// How far each node is.
    pub(super) fn so_far(&self) -> Vec<NodeProgress> {
        self.0.clone()
    }

    /// How far all of it is, when the stage at hand is so far.
    fn with(&self, stage: &[NodeProgress]) -> Vec<NodeProgress> {
        let mut all = self.0.clone();
        for node in stage {
            if let Some(whole) = all.iter_mut().find(|whole| whole.node == node.node) {
                whole.done = (whole.done + node.done).min(whole.total);
            }
        }
        all
    }

    /// Counts a node's bytes as done.
    pub(super) fn finish(&mut self, node: u32, bytes: u64) {
        if let Some(whole) = self.0.iter_mut().find(|whole| whole.node == node) {
            whole.done = (whole.done + bytes).min(whole.total);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn stages_add_up() {
        let told = RefCell::new(Vec::new());
        let tell = |nodes: &[NodeProgress]| {
            let figures = nodes.iter().map(|node| (node.node, node.done, node.total));
            *told.borrow_mut() = figures.collect();
        };
        let control = Control {
            progress: Some(&tell),
            ..Control::default()
        };
        let mut stages = Stages::new([(0, 4), (1, 8), (0, 4)]);
        let of = |node, done, total| NodeProgress { node, done, total };
        stages.during(&control, |control| {
            control.progress.expect("passed on")(&[of(0, 3, 4), of(1, 1, 8)]);
        });
        assert_eq!(*told.borrow(), [(0, 3, 8), (1, 1, 8)]);
        stages.finish(0, 4);
        stages.during(&control, |control| {
            control.progress.expect("passed on")(&[of(0, 2, 4)]);
        });
        assert_eq!(*told.borrow(), [(0, 6, 8), (1, 0, 8)]);
        let stalled = |stall: &Stall| tell(&stall.nodes);
        let control = Control {
            stalled: Some(&stalled),
            ..Control::default()
        };
        stages.during(&control, |control| {
            control.stalled.expect("passed on")(&Stall {
                seconds: 2,
                nodes: vec![of(1, 5, 8)],
                stopping: None,
            });
        });
        assert_eq!(*told.borrow(), [(0, 4, 8), (1, 5, 8)]);
    }
}
