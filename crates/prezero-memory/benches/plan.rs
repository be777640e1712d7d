//! How long the planner takes: it runs before every guest, so it has to stay far below the populate it prepares.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use prezero_memory::{Host, MemorySpec, Prealloc, Request, plan};

fn fixture(name: &str) -> Host {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts");
    Host::read(&hosts.join(name))
}

/// The small fixture has 1 GiB of hugepages; with 16 GiB, what is measured is a plan and not a refusal.
fn one_node() -> Host {
    let mut host = fixture("one-node");
    for pool in &mut host.pools {
        (pool.total, pool.free) = (8192, 8192);
    }
    host.nodes[0].pools = host.pools.iter().map(Into::into).collect();
    host
}

fn planning(criterion: &mut Criterion) {
    for (name, host, spec) in [
        (
            "plan/16T_on_eight_nodes_of_64_cpus",
            fixture("eight-nodes-16t"),
            "16T,hugepages=on",
        ),
        ("plan/16G_on_one_node", one_node(), "16G,hugepages=on"),
    ] {
        let request = Request {
            zones: vec![spec.parse().unwrap()],
            prealloc: Prealloc::Eager,
            ..Request::default()
        };
        assert!(plan(&host, &request).is_ok(), "{name}");
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| plan(black_box(&host), black_box(&request)));
        });
    }
}

fn parsing(criterion: &mut Criterion) {
    for (name, spec) in [
        ("spec/size_only", "16G"),
        (
            "spec/every_key",
            "size=16G,id=low,hugepages=on,hugepage_size=1G,host_numa_node=1",
        ),
    ] {
        assert!(spec.parse::<MemorySpec>().is_ok(), "{name}");
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| black_box(spec).parse::<MemorySpec>());
        });
    }
}

criterion_group!(benches, planning, parsing);
criterion_main!(benches);
