//! How far work came, in words.

use std::fmt;
use std::time::Duration;

use crate::control::NodeProgress;
use crate::size::ByteSize;

/// ", after 2.0 s at 9.1 GB/s", 10^9 bytes, of all nodes; nothing where no worker had begun.
#[allow(clippy::cast_precision_loss)] // for display, three digits
pub(crate) fn pace(nodes: &[NodeProgress], elapsed: Duration) -> String {
    if elapsed.is_zero() {
        return String::new();
    }
    let done: u64 = nodes.iter().map(|node| node.done).sum();
    let seconds = elapsed.as_secs_f64();
    format!(
        ", after {seconds:.1} s at {:.1} GB/s",
        done as f64 / 1e9 / seconds
    )
}

/// "3 GiB of 16 GiB populated on node 0, …", with a word for what is done.
pub(crate) struct Far<'a>(pub(crate) &'a [NodeProgress], pub(crate) &'static str);

impl fmt::Display for Far<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, node) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            let (done, total) = (ByteSize(node.done), ByteSize(node.total));
            write!(
                f,
                "{comma}{done} of {total} {} on node {}",
                self.1, node.node
            )?;
        }
        Ok(())
    }
}
