//! Hosts and requests to plan with.

use std::path::Path;

use prezero_memory::{Host, Prealloc, Request};

/// The machine whose files are in `tests/fixtures/hosts/NAME`.
pub(crate) fn fixture(name: &str) -> Host {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts");
    let host = Host::read(&hosts.join(name));
    assert_eq!(host.problems, [], "{name}");
    host
}

/// A request for these zones, to be populated before the guest starts.
pub(crate) fn eager(specs: &[&str]) -> Request {
    Request {
        zones: specs.iter().map(|spec| spec.parse().unwrap()).collect(),
        prealloc: Prealloc::Eager,
        ..Request::default()
    }
}
