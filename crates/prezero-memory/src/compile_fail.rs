//! What must not compile, each next to a twin that differs in one line and does.
//!
//! rustdoc ignores the error code of a `compile_fail` test on stable Rust, so without its twin a
//! test would also pass for a typo.

/// Memory that is only reserved cannot be registered.
///
/// ```
/// use prezero_memory::{GuestRam, SlotRegistrar, Zeroed};
/// fn hand_over<R: SlotRegistrar>(ram: GuestRam<Zeroed>, kvm: R) {
///     let _ = ram.register(kvm);
/// }
/// ```
///
/// ```compile_fail
/// use prezero_memory::{GuestRam, SlotRegistrar, Reserved as Zeroed};
/// fn hand_over<R: SlotRegistrar>(ram: GuestRam<Zeroed>, kvm: R) {
///     let _ = ram.register(kvm);
/// }
/// ```
///
/// Nor can memory whose placement nobody has checked:
///
/// ```compile_fail
/// use prezero_memory::{GuestRam, SlotRegistrar, Cleared as Zeroed};
/// fn hand_over<R: SlotRegistrar>(ram: GuestRam<Zeroed>, kvm: R) {
///     let _ = ram.register(kvm);
/// }
/// ```
///
/// Nor can memory that was populated only, and may be dirty:
///
/// ```compile_fail
/// use prezero_memory::{GuestRam, SlotRegistrar, Populated as Zeroed};
/// fn hand_over<R: SlotRegistrar>(ram: GuestRam<Zeroed>, kvm: R) {
///     let _ = ram.register(kvm);
/// }
/// ```
///
/// Nor memory that a guest may have written to:
///
/// ```compile_fail
/// use prezero_memory::{GuestRam, SlotRegistrar, Dirty as Zeroed};
/// fn hand_over<R: SlotRegistrar>(ram: GuestRam<Zeroed>, kvm: R) {
///     let _ = ram.register(kvm);
/// }
/// ```
mod register_needs_zeroed_memory {}

/// Leaving `Registered` gives dirty memory.
///
/// ```
/// use prezero_memory::{Dirty, GuestRam, Registered, SlotRegistrar};
/// fn take_back<R: SlotRegistrar>(ram: GuestRam<Registered<R>>) -> GuestRam<Dirty> {
///     ram.unregister()
/// }
/// ```
///
/// ```compile_fail
/// use prezero_memory::{Zeroed as Dirty, GuestRam, Registered, SlotRegistrar};
/// fn take_back<R: SlotRegistrar>(ram: GuestRam<Registered<R>>) -> GuestRam<Dirty> {
///     ram.unregister()
/// }
/// ```
mod unregistered_memory_is_dirty {}

/// Registered memory cannot be registered a second time: registering consumes it.
///
/// ```
/// use prezero_memory::{GuestRam, SlotRegistrar, Zeroed};
/// fn hand_over<R: SlotRegistrar + Clone>(ram: GuestRam<Zeroed>, other: GuestRam<Zeroed>, kvm: R) {
///     let _ = ram.register(kvm.clone());
///     let _ = other.register(kvm);
/// }
/// ```
///
/// ```compile_fail
/// use prezero_memory::{GuestRam, SlotRegistrar, Zeroed};
/// fn hand_over<R: SlotRegistrar + Clone>(ram: GuestRam<Zeroed>, other: GuestRam<Zeroed>, kvm: R) {
///     let _ = ram.register(kvm.clone());
///     let _ = ram.register(kvm);
/// }
/// ```
mod register_consumes {}

/// Only reserved memory can be left unpopulated on purpose.
///
/// ```
/// use prezero_memory::{GuestRam, Reserved, Zeroed};
/// fn lazy(ram: GuestRam<Reserved>) -> GuestRam<Zeroed> {
///     ram.unpopulated().expect("all of it is fresh")
/// }
/// ```
///
/// ```compile_fail
/// use prezero_memory::{GuestRam, Dirty as Reserved, Zeroed};
/// fn lazy(ram: GuestRam<Reserved>) -> GuestRam<Zeroed> {
///     ram.unpopulated().expect("all of it is fresh")
/// }
/// ```
mod unpopulated_needs_reserved_memory {}

/// Nobody else can invent a state.
///
/// ```
/// use prezero_memory::{GuestRam, State, Zeroed};
/// struct Mine;
/// fn bytes(ram: &GuestRam<Zeroed>) -> u64 { ram.bytes() }
/// ```
///
/// ```compile_fail
/// use prezero_memory::{GuestRam, State, Zeroed};
/// struct Mine; impl State for Mine {}
/// fn bytes(ram: &GuestRam<Zeroed>) -> u64 { ram.bytes() }
/// ```
mod states_are_sealed {}

/// A state cannot be made from nothing.
///
/// ```
/// use prezero_memory::Zeroed;
/// fn name() -> &'static str { std::any::type_name::<Zeroed>() }
/// ```
///
/// ```compile_fail
/// use prezero_memory::Zeroed;
/// fn name() -> &'static str { let _ = Zeroed(()); std::any::type_name::<Zeroed>() }
/// ```
mod states_are_not_made_outside {}

/// A byte count in pages is only made by the checked constructors.
///
/// ```
/// use prezero_memory::{PageBytes, PageSize};
/// let len = PageBytes::new(4 << 20, PageSize::HUGE_2M);
/// assert!(len.is_some());
/// ```
///
/// ```compile_fail
/// use prezero_memory::{PageBytes, PageSize};
/// let len = Some(PageBytes { bytes: 4 << 20, page_size: PageSize::HUGE_2M });
/// assert!(len.is_some());
/// ```
mod page_bytes_are_whole_pages {}

/// A plan is only made by planning.
///
/// ```
/// use prezero_memory::{Host, Plan, PlanError, Request, plan};
/// fn made(host: &Host) -> Result<Plan, PlanError> { plan(host, &Request::default()) }
/// ```
///
/// ```compile_fail
/// use prezero_memory::{Host, Plan, PlanError, Request, plan};
/// fn made(host: &Host) -> Result<Plan, PlanError> { Ok(Plan { ..plan(host, &Request::default())? }) }
/// ```
mod plans_are_planned {}

/// The placement is checked of cleared memory only, so that there is no way past the clear.
///
/// ```
/// use prezero_memory::{Cleared, Control, GuestRam};
/// fn check(ram: GuestRam<Cleared>) {
///     let _ = ram.check_placement(&Control::default());
/// }
/// ```
///
/// ```compile_fail
/// use prezero_memory::{Populated as Cleared, Control, GuestRam};
/// fn check(ram: GuestRam<Cleared>) {
///     let _ = ram.check_placement(&Control::default());
/// }
/// ```
mod unknown_memory_is_cleared {}

/// Memory that was only reserved is not cleared: a store to a page that is not there can be a SIGBUS.
///
/// ```
/// use prezero_memory::{ClearRequest, Control, GuestRam, Populated, Workers};
/// fn clear(ram: GuestRam<Populated>, workers: &Workers) {
///     let _ = ram.clear(workers, &ClearRequest::default(), &Control::default());
/// }
/// ```
///
/// ```compile_fail
/// use prezero_memory::{ClearRequest, Control, GuestRam, Reserved as Populated, Workers};
/// fn clear(ram: GuestRam<Populated>, workers: &Workers) {
///     let _ = ram.clear(workers, &ClearRequest::default(), &Control::default());
/// }
/// ```
mod stores_follow_populate {}
