//! What reserving would fail with, found out without taking a page.

use super::{GuestRam, Reserved};
use crate::error::ReserveError;
use crate::plan::Plan;
use crate::{policy, sys};

impl GuestRam<Reserved> {
    /// Tries whether the files of a plan can be made in its directories, without taking a page.
    ///
    /// # Errors
    ///
    /// What [`GuestRam::reserve`] would fail with for its `path=`.
    pub fn try_paths(plan: &Plan) -> Result<(), ReserveError> {
        for slot in plan.slots() {
            if let Some(dir) = slot.dir() {
                sys::hugetlbfs_file(dir, slot.align(), 0)
                    .map_err(|source| ReserveError::create(dir, source))?;
            }
        }
        Ok(())
    }

    /// Tries whether the kernel takes the policies of a plan, on address space without a page.
    ///
    /// # Errors
    ///
    /// What [`GuestRam::reserve`] would fail with for its nodes.
    pub fn try_policies(plan: &Plan) -> Result<(), ReserveError> {
        for extent in plan.extents() {
            // The pages of a segment are where they are.
            if let Some(policy) = extent.policy().filter(|_| extent.segment().is_none()) {
                policy::sys::attempt(policy, extent.nodes(), extent.node())
                    .map_err(|source| ReserveError::policy(extent, source))?;
            }
        }
        Ok(())
    }
}
