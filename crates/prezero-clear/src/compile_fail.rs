//! What must not compile, each next to a twin that differs in one line and does.
//!
//! rustdoc ignores the error code of a `compile_fail` test on stable Rust, so without its twin a
//! test would also pass for a typo.

/// Stores that are not fenced stay on the thread that issued them; spans and receipts may go.
///
/// ```
/// use prezero_clear::{Coherent, Incoherent, Span};
/// fn may_be_sent<T: Send>() {}
/// may_be_sent::<Span<'static>>();
/// may_be_sent::<Coherent<'static>>();
/// ```
///
/// ```compile_fail
/// use prezero_clear::{Coherent, Incoherent, Span};
/// fn may_be_sent<T: Send>() {}
/// may_be_sent::<Span<'static>>();
/// may_be_sent::<Incoherent<'static>>();
/// ```
///
/// Nor may another thread look at them:
///
/// ```
/// use prezero_clear::{Coherent, Incoherent};
/// fn may_be_shared<T: Sync>() {}
/// may_be_shared::<Coherent<'static>>();
/// ```
///
/// ```compile_fail
/// use prezero_clear::{Coherent, Incoherent};
/// fn may_be_shared<T: Sync>() {}
/// may_be_shared::<Incoherent<'static>>();
/// ```
mod unfenced_stores_stay_on_their_thread {}

/// There is no receipt but from a fence, not even where there is one already.
///
/// ```
/// use prezero_clear::Coherent;
/// fn another(receipt: Coherent<'_>) -> Coherent<'_> {
///     receipt
/// }
/// ```
///
/// ```compile_fail
/// use prezero_clear::Coherent;
/// fn another(receipt: Coherent<'_>) -> Coherent<'_> {
///     Coherent { ..receipt }
/// }
/// ```
///
/// ```compile_fail
/// use prezero_clear::Coherent;
/// fn another(receipt: Coherent<'_>) -> Coherent<'_> {
///     receipt.clone()
/// }
/// ```
mod receipts_come_from_fences {}

/// Stores that are not fenced are no receipt.
///
/// ```
/// use prezero_clear::{Incoherent, account};
/// fn settle(wanted: (usize, usize), stores: Incoherent<'_>) -> bool {
///     account(&[wanted], vec![stores.fence()]).is_ok()
/// }
/// ```
///
/// ```compile_fail
/// use prezero_clear::{Incoherent, account};
/// fn settle(wanted: (usize, usize), stores: Incoherent<'_>) -> bool {
///     account(&[wanted], vec![stores]).is_ok()
/// }
/// ```
mod unfenced_stores_are_no_receipt {}

/// A span is cleared once: whoever has a receipt for it may already be using the memory.
///
/// ```
/// use prezero_clear::{Clearing, Coherent, Method, Span};
/// fn both<'r>(one: Span<'r>, two: Span<'r>) -> [Coherent<'r>; 2] {
///     let how = Clearing::new(Method::cached());
///     [one.clear(&how).fence(), two.clear(&how).fence()]
/// }
/// ```
///
/// ```compile_fail
/// use prezero_clear::{Clearing, Coherent, Method, Span};
/// fn both<'r>(one: Span<'r>, two: Span<'r>) -> [Coherent<'r>; 2] {
///     let how = Clearing::new(Method::cached());
///     [one.clear(&how).fence(), one.clear(&how).fence()]
/// }
/// ```
mod a_span_is_cleared_once {}

/// Neither a span nor its receipt outlives the mapping.
///
/// ```
/// use prezero_clear::{Clearing, Method, Span};
/// struct Mapping;
/// impl Mapping {
///     fn span(&mut self) -> Span<'_> { unimplemented!() }
/// }
/// fn clear(mut mapping: Mapping) {
///     let span = mapping.span();
///     let stores = span.clear(&Clearing::new(Method::cached()));
///     let receipt = stores.fence();
///     drop(receipt);
///     drop(mapping);
/// }
/// ```
///
/// ```compile_fail
/// use prezero_clear::{Clearing, Method, Span};
/// struct Mapping;
/// impl Mapping {
///     fn span(&mut self) -> Span<'_> { unimplemented!() }
/// }
/// fn clear(mut mapping: Mapping) {
///     let span = mapping.span();
///     drop(mapping);
///     let stores = span.clear(&Clearing::new(Method::cached()));
///     let receipt = stores.fence();
///     drop(receipt);
/// }
/// ```
///
/// ```compile_fail
/// use prezero_clear::{Clearing, Method, Span};
/// struct Mapping;
/// impl Mapping {
///     fn span(&mut self) -> Span<'_> { unimplemented!() }
/// }
/// fn clear(mut mapping: Mapping) {
///     let span = mapping.span();
///     let stores = span.clear(&Clearing::new(Method::cached()));
///     let receipt = stores.fence();
///     drop(mapping);
///     drop(receipt);
/// }
/// ```
mod nothing_outlives_the_mapping {}

/// A method comes from looking at the CPU.
///
/// ```
/// use prezero_clear::arch::portable::Portable;
/// let portable: Portable = Portable::new().unwrap();
/// ```
///
/// ```compile_fail
/// use prezero_clear::arch::portable::Portable;
/// let portable: Portable = Portable(());
/// ```
mod methods_come_from_detection {}
