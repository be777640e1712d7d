//! Work that stands still because the kernel does not return: the user is told, and a process that was
//! told to stop ends all the same.

use std::cell::Cell;
use std::process;
use std::time::Duration;

use prezero_memory::{ByteSize, Class, Stall};

use crate::failure::{Failure, exit_code};
use crate::output;

/// How long the work may stand still before the user is told, in seconds.
const TOLD: u64 = 10;
/// How long it may go on after it was told to stop before the process ends itself.
const ENDED: Duration = Duration::from_secs(3);

/// What workers do, in words.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    doing: &'static str,
    done: &'static str,
}

pub(crate) const POPULATE: Work = Work {
    name: "populate",
    doing: "populating",
    done: "populated",
};
pub(crate) const CLEAR: Work = Work {
    name: "clear",
    doing: "clearing",
    done: "cleared",
};

/// What the kernel may say of it.
pub(crate) const LOOK: &str = "sudo dmesg | tail; cat /proc/pressure/memory";

/// Watches over one piece of work; [`StallWatch::see`] is for [`prezero_memory::Control::stalled`].
pub(crate) struct StallWatch<'a> {
    work: &'static Work,
    /// The fix of a process that had to end.
    fix: &'a str,
    /// Prints what there is to print before the process ends.
    last_words: &'a dyn Fn(Failure),
    told: Cell<bool>,
}

impl<'a> StallWatch<'a> {
    pub(crate) fn new(work: &'static Work, fix: &'a str, last_words: &'a dyn Fn(Failure)) -> Self {
        Self {
            work,
            fix,
            last_words,
            told: Cell::new(false),
        }
    }

    /// Tells the user once for each stall, and ends the process if it was told to stop and the kernel does
    /// not return: nothing else ends a call that the kernel retries for ever.
    pub(crate) fn see(&self, stall: &Stall) {
        let far = stall.nodes.iter().map(|node| {
            let (done, total) = (ByteSize(node.done), ByteSize(node.total));
            format!("{done} of {total} on node {}", node.node)
        });
        let far = far.collect::<Vec<_>>().join(", ");
        let (seconds, Work { doing, done, .. }) = (stall.seconds, self.work);
        if stall.stopping.is_some_and(|told| told >= ENDED) {
            let failure = Failure {
                class: Class::Stopped,
                message: format!(
                    "Stopped while the kernel did not return from {doing} for {seconds} s, with {far}"
                ),
                fix: Some(self.fix.to_owned()),
            };
            let code = exit_code(failure.class);
            (self.last_words)(failure);
            process::exit(code.into());
        }
        // It is seen from its second second on, so that another one begins below.
        let long = seconds >= TOLD;
        if long && !self.told.get() {
            output::warn(&format!("No page was {done} for {seconds} s: {far}"));
        }
        self.told.set(long);
    }
}
