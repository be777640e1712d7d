//! From populated memory to memory that reads as zero, also where a guest has had it.

use std::sync::Arc;
use std::time::Duration;

use super::{Cleared, Contents, Dirty, GuestRam, Populated, Slot};
use crate::clear::{ClearError, ClearReport, ClearRequest, clear, rehearse, stain};
use crate::control::Control;
use crate::error::{Failed, RepopulateError};
use crate::populate::{PopulateReport, populate};
use crate::workers::Workers;

impl GuestRam<Populated> {
    /// Has the workers clear what is not known to be zero, or everything.
    ///
    /// Fresh memory is not touched unless [`crate::ClearExtents::All`] asks for it: the kernel cleared
    /// it when it was populated.
    ///
    /// # Errors
    ///
    /// [`ClearError`], with the memory, which is as unknown as before: it may be tried again.
    pub fn clear(
        self,
        workers: &Workers,
        request: &ClearRequest,
        control: &Control<'_>,
    ) -> Result<(GuestRam<Cleared>, ClearReport), Failed<Self, ClearError>> {
        let used_next = request.used_next.iter();
        let request = ClearRequest {
            used_next: used_next.filter_map(|gpa| self.addr_of(*gpa)).collect(),
            ..request.clone()
        };
        // SAFETY: populated, owned here, and not yet shown to anybody who could use it: descriptors
        // and views come from registered memory only, and `repopulate` refuses memory with views.
        match unsafe { clear(workers, &self.targets(), &request, control) } {
            Ok(report) => Ok((self.into_state(Cleared(())), report)),
            Err(error) => Err(Failed { ram: self, error }),
        }
    }

    /// Has the workers share the memory out among them as [`GuestRam::clear`] would, and clear none of it: how
    /// long that takes, from the barrier to the last worker's end. For measurements, whose own cost it
    /// is: this is in [`ClearReport::time`], too, and is not clearing.
    ///
    /// # Errors
    ///
    /// As [`GuestRam::clear`].
    pub fn rehearse_clear(
        &self,
        workers: &Workers,
        request: &ClearRequest,
        control: &Control<'_>,
    ) -> Result<Duration, ClearError> {
        rehearse(workers, &self.targets(), request, control)
    }

    /// Has the workers fill all of it with a byte, and takes nothing about its contents for granted
    /// afterwards. For tests and measurements: some CPUs clear what is zero already faster.
    ///
    /// # Errors
    ///
    /// [`ClearError`], with the memory.
    pub fn stain(
        mut self,
        workers: &Workers,
        byte: u8,
        control: &Control<'_>,
    ) -> Result<Self, Failed<Self, ClearError>> {
        self.contents = Contents::Unknown;
        // SAFETY: as in `clear`.
        match unsafe { stain(workers, &self.targets(), byte, control) } {
            Ok(()) => Ok(self),
            Err(error) => Err(Failed { ram: self, error }),
        }
    }
}

impl GuestRam<Cleared> {
    /// Takes nothing about the contents for granted any more, so that it can be cleared again. For
    /// measurements.
    #[must_use]
    pub fn into_unknown(mut self) -> GuestRam<Populated> {
        self.contents = Contents::Unknown;
        self.into_state(Populated(()))
    }
}

impl GuestRam<Dirty> {
    /// Has the workers populate it again, so that it can be cleared for another guest: a guest may
    /// have given pages back. All of it counts as dirty.
    ///
    /// # Errors
    ///
    /// [`RepopulateError`], with the memory, if KVM did not remove its slots, if a view of it still
    /// exists (a clone of its `GuestMemoryMmap`), or if populating fails.
    ///
    /// # Safety
    ///
    /// Whoever was given a descriptor of the memory ([`GuestRam::files`], or the file of a
    /// `GuestMemoryMmap`), vhost-user devices for instance, has let go of it and of every mapping made
    /// with it: what they write later would reach the next guest, and a file that they cut short
    /// makes the workers' stores a SIGBUS. No type can see that.
    pub unsafe fn repopulate(
        mut self,
        workers: &Workers,
        control: &Control<'_>,
    ) -> Result<(GuestRam<Populated>, PopulateReport), Failed<Self, RepopulateError>> {
        if self.slots.iter().any(|slot| slot.mapping.known_to_kvm()) {
            let error = RepopulateError::KnownToKvm;
            return Err(Failed { ram: self, error });
        }
        let viewed = |slot: &mut Slot| Arc::get_mut(&mut slot.mapping).is_none();
        if self.slots.iter_mut().any(viewed) {
            let error = RepopulateError::Viewed;
            return Err(Failed { ram: self, error });
        }
        self.contents = Contents::Unknown;
        match populate(workers, &self.targets(), control) {
            Ok(report) => Ok((self.into_state(Populated(())), report)),
            Err(error) => {
                let error = RepopulateError::Populate(error);
                Err(Failed { ram: self, error })
            }
        }
    }
}
