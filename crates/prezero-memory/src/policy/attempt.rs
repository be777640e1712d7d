//! Whether the kernel takes the policies of a plan, tried on address space without a page.

use super::sys;
use crate::error::ReserveError;
use crate::plan::Plan;

/// Tries whether the policies of a plan are allowed here, without taking a page.
///
/// # Errors
///
/// What [`crate::GuestRam::reserve`] would fail with for its nodes.
pub fn try_policies(plan: &Plan) -> Result<(), ReserveError> {
    for extent in plan.extents() {
        if let Some(policy) = extent.policy() {
            sys::attempt(policy, extent.nodes(), extent.node())
                .map_err(|source| ReserveError::policy(extent, source))?;
        }
    }
    Ok(())
}
