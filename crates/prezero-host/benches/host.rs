//! How long reading a host takes: it is the first phase of every guest's creation.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use prezero_host::Host;

fn reading(criterion: &mut Criterion) {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts");
    let large = hosts.join("eight-nodes-16t");
    assert_eq!(Host::read(&large).nodes.len(), 8);
    criterion.bench_function("read/eight_nodes_of_64_cpus", |bencher| {
        bencher.iter(|| Host::read(black_box(&large)));
    });
    criterion.bench_function("probe/this_machine", |bencher| bencher.iter(Host::probe));
}

criterion_group!(benches, reading);
criterion_main!(benches);
