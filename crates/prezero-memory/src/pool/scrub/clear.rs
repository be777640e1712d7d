//! Clearing dirty segments in place, with uncached stores.

use super::super::error::PoolError;
use super::super::lock::Locked;
use super::super::mapped::{Piece, Resident, clear_pieces};
use super::exchange::{NotRefilled, Refill};
use super::{Pass, ScrubReport, finish};
use crate::clear::ClearError;
use crate::control::Control;

impl Pass<'_> {
    /// Returns those that are clean by now, still locked.
    pub(super) fn clear(
        &mut self,
        round: Vec<Locked>,
        control: &Control<'_>,
        report: &mut ScrubReport,
    ) -> Result<Vec<Locked>, PoolError> {
        let mut ready: Vec<(Locked, Resident)> = Vec::new();
        for locked in round {
            let filled = match locked.check_whole(self.pool.owned) {
                Ok(()) => Ok(()),
                Err(_) => self.refill(&locked, Refill::Missing, control, report),
            };
            let resident =
                filled.and_then(|()| self.pool.resident(&locked).map_err(NotRefilled::Left));
            match resident {
                Ok(resident) => ready.push((locked, resident)),
                Err(NotRefilled::Stopped(error)) => return Err(error),
                Err(NotRefilled::Left(left)) => {
                    self.stages.finish(locked.node(), locked.len().bytes());
                    report.leave(locked, left);
                }
            }
        }
        self.clear_all(&ready, control, report)?;
        let mut clean = Vec::new();
        for (locked, resident) in ready {
            match finish(locked, resident, self.pool.owned) {
                Ok(locked) => {
                    report.segments += 1;
                    report.bytes += locked.len().bytes();
                    clean.push(locked);
                }
                Err((locked, left)) => report.leave(locked, left),
            }
        }
        Ok(clean)
    }

    fn clear_all(
        &mut self,
        ready: &[(Locked, Resident)],
        control: &Control<'_>,
        report: &mut ScrubReport,
    ) -> Result<(), ClearError> {
        let Some(pace) = &mut self.pace else {
            let all = ready
                .iter()
                .flat_map(|(_, resident)| resident.pieces(u64::MAX));
            let all: Vec<Piece<'_>> = all.collect();
            let cleared = self.stages.during(control, |control| {
                clear_pieces(&self.workers, &all, &self.clear, control)
            })?;
            report.work_time += cleared.time;
            report.choices = cleared.choices;
            for (locked, _) in ready {
                self.stages.finish(locked.node(), locked.len().bytes());
            }
            return Ok(());
        };
        let piece = pace.piece(self.pool.page_size());
        for (locked, resident) in ready {
            for piece in resident.pieces(piece) {
                pace.start();
                let cleared = self.stages.during(control, |control| {
                    clear_pieces(&self.workers, &[piece], &self.clear, control)
                })?;
                self.stages.finish(locked.node(), piece.bytes());
                report.work_time += cleared.time;
                report.choices = cleared.choices;
                pace.done(piece.bytes(), control);
            }
        }
        Ok(())
    }
}
