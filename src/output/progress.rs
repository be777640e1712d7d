//! Progress bars on stderr, one per node, where it is a terminal.

use std::cell::OnceCell;
use std::io::{self, IsTerminal};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use prezero_memory::NodeProgress;

/// Bars for one phase. Without a terminal they cost and show nothing.
#[derive(Debug)]
pub(crate) struct Bars(Vec<ProgressBar>);

impl Bars {
    /// One bar for each (node, bytes) that has bytes.
    pub(crate) fn new(phase: &str, parts: &[(Option<u32>, u64)]) -> Self {
        if !io::stderr().is_terminal() {
            return Self(Vec::new());
        }
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "{prefix:>16} {wide_bar} {binary_bytes}/{binary_total_bytes} {eta:>4}",
        )
        .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bars = parts.iter().filter(|part| part.1 > 0).map(|(node, bytes)| {
            let prefix = match node {
                Some(node) => format!("{phase} node {node}"),
                None => phase.to_owned(),
            };
            all.add(ProgressBar::new(*bytes))
                .with_style(style.clone())
                .with_prefix(prefix)
        });
        Self(bars.collect())
    }

    pub(crate) fn set(&self, bar: usize, bytes: u64) {
        if let Some(bar) = self.0.get(bar) {
            bar.set_position(bytes);
        }
    }

    pub(crate) fn finish(&self) {
        for bar in &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Bars for work whose nodes and totals are known when it begins.
#[derive(Debug)]
pub(crate) struct NodeBars {
    phase: &'static str,
    bars: OnceCell<Bars>,
}

impl NodeBars {
    pub(crate) fn new(phase: &'static str) -> Self {
        let bars = OnceCell::new();
        Self { phase, bars }
    }

    /// Every call has the same nodes.
    pub(crate) fn show(&self, nodes: &[NodeProgress]) {
        let bars = self.bars.get_or_init(|| {
            let several = nodes.len() > 1;
            let part = |node: &NodeProgress| (several.then_some(node.node), node.total);
            Bars::new(self.phase, &nodes.iter().map(part).collect::<Vec<_>>())
        });
        for (n, node) in nodes.iter().enumerate() {
            bars.set(n, node.done);
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bars) = self.bars.get() {
            bars.finish();
        }
    }
}
