//! From reserved memory to memory that a guest may read: populate, clear, check the placement.

use prezero_memory::{
    ClearReport, ClearRequest, Cleared, Control, Extent, GuestRam, MethodChoice, NodeProgress,
    Plan, Populated, Reserved, Stall, WorkerReport, Workers, Zeroed,
};

use super::machine::Machine;
use super::{finish, throttling};
use crate::commands::stall::{self, CLEAR, POPULATE, StallWatch, Work};
use crate::failure::Failure;
use crate::output::progress::Bars;
use crate::report::run::LOOSE;

impl Machine<'_> {
    /// Makes memory ready for a guest. `used_next` are the guest addresses that are used first.
    pub(super) fn prepare(
        &mut self,
        planned: &Plan,
        reserved: GuestRam<Reserved>,
        used_next: Vec<u64>,
    ) -> Result<GuestRam<Zeroed>, Failure> {
        let throttling = throttling::start();
        let cleared = self.work(planned, reserved, used_next);
        // Also where it came too late, which may be why.
        throttling::note(self.report, &throttling);
        self.check_placement(planned, cleared?)
    }

    /// What the workers do. They are gone when it returns.
    fn work(
        &mut self,
        planned: &Plan,
        reserved: GuestRam<Reserved>,
        used_next: Vec<u64>,
    ) -> Result<GuestRam<Cleared>, Failure> {
        let workers = Workers::start(planned.workers())?;
        let populated = self.populate(planned, reserved, &workers)?;
        (self.populated)(&populated);
        self.clear(planned, populated, &workers, used_next)
    }

    fn populate(
        &mut self,
        planned: &Plan,
        reserved: GuestRam<Reserved>,
        workers: &Workers,
    ) -> Result<GuestRam<Populated>, Failure> {
        let populated = self.watched(&POPULATE, planned, workers, |control| {
            reserved.populate(workers, control)
        });
        let (populated, done) = populated.map_err(|failed| {
            self.unfit_in = failed.error.is_poison().then_some("populate");
            failed.error
        })?;
        self.report.set_workers(&done.workers);
        self.warn_of_loose(planned, &done.workers);
        self.lap("populate", done.bytes);
        Ok(populated)
    }

    /// Clears what is not known to be zero, or everything. Where that is nothing it costs nothing.
    fn clear(
        &mut self,
        planned: &Plan,
        populated: GuestRam<Populated>,
        workers: &Workers,
        used_next: Vec<u64>,
    ) -> Result<GuestRam<Cleared>, Failure> {
        let request = ClearRequest {
            extents: planned.clear(),
            choice: self
                .method
                .map_or(MethodChoice::Measured, MethodChoice::Fixed),
            chunk: self.args.chunk,
            used_next,
            ..ClearRequest::default()
        };
        let cleared = self.watched(&CLEAR, planned, workers, |control| {
            populated.clear(workers, &request, control)
        });
        let (cleared, done) = cleared.map_err(|failed| failed.error)?;
        if done.bytes > 0 {
            self.report.set_clear(&done);
            self.clear_laps(&done);
        } else if let Some(method) = self.method {
            self.report.warn(format!(
                "--method {method} had nothing to do: all memory is fresh, and the kernel clears it (--clear always clears it once more)"
            ));
        }
        Ok(cleared)
    }

    fn clear_laps(&mut self, done: &ClearReport) {
        let mut left = done.bytes;
        if let Some(tried) = done.calibrating {
            self.clock
                .lap_of(self.report, "calibrate", tried.time, tried.bytes);
            left -= tried.bytes;
        }
        self.lap("clear", left);
    }

    fn check_placement(
        &mut self,
        planned: &Plan,
        cleared: GuestRam<Cleared>,
    ) -> Result<GuestRam<Zeroed>, Failure> {
        let (zeroed, placement) = cleared.check_placement(&self.control).map_err(|failed| {
            self.unfit_in = failed.error.is_misplaced().then_some("verify");
            failed.error
        })?;
        if let Some(warning) = placement.warning() {
            self.report.warn(warning);
        }
        self.report.placement = Some((&placement).into());
        self.lap("verify", planned.bytes());
        Ok(zeroed)
    }

    /// Does `work` with progress bars, and watches over it.
    fn watched<T>(
        &self,
        phase: &'static Work,
        planned: &Plan,
        workers: &Workers,
        work: impl FnOnce(&Control<'_>) -> T,
    ) -> T {
        let mut nodes: Vec<(Option<u32>, u64)> = Vec::new();
        for node in workers.nodes() {
            let shares = planned.extents().flat_map(Extent::shares);
            let of_node = shares.filter(|(of, _)| *of == node);
            nodes.push((Some(node), of_node.map(|(_, len)| len.bytes()).sum()));
        }
        let bars = Bars::new(phase.name, &nodes);
        let progress = |nodes: &[NodeProgress]| {
            for (n, node) in nodes.iter().enumerate() {
                bars.set(n, node.done);
            }
        };
        let (report, json) = (&*self.report, self.args.json);
        let fix = match report.grown.is_empty() {
            true => stall::LOOK,
            // Nothing is given back from there: the pages are still mapped.
            false => "prezero doctor shows what --reserve added and how to take it out",
        };
        let last_words = |failure| {
            let _ = finish(&mut report.clone(), Err(failure), json);
        };
        let watch = StallWatch::new(phase, fix, &last_words);
        let stalled = |stall: &Stall| watch.see(stall);
        let control = Control {
            progress: Some(&progress),
            stalled: Some(&stalled),
            ..self.control
        };
        let result = work(&control);
        bars.finish();
        result
    }

    fn warn_of_loose(&mut self, planned: &Plan, workers: &[WorkerReport]) {
        let loose = workers.iter().filter(|worker| !worker.pinned).count();
        // Where the host shows no topology the plan has warned already.
        let to_pin = planned
            .workers()
            .iter()
            .all(|worker| worker.cpu().is_some());
        if loose > 0 && to_pin {
            let all = workers.len();
            self.report
                .warn(format!("{loose} of {all} workers {LOOSE}"));
        }
    }
}
