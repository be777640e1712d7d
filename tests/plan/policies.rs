//! Policies in the document and in the text, on a recorded host of two nodes.

use serde_json::Value;

use crate::command::{error_of, finish, prezero};

const HOST: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/hosts/two-sockets-uneven"
);

fn plan(memory: &str, more: &str) -> crate::command::Ran {
    let args = format!("plan --memory size={memory} --prealloc --root {HOST} {more}");
    finish(prezero(&args))
}

/// Node, nodes and policy of each region.
fn regions(memory: &str) -> Vec<(Value, Value, Value)> {
    let report = plan(memory, "--json").exits_with(0).json();
    let regions = report["regions"].as_array().expect("a list").iter();
    regions
        .map(|region| {
            let of = |key: &str| region[key].clone();
            (of("node"), of("nodes"), of("policy"))
        })
        .collect()
}

#[test]
fn regions_say_which_nodes_and_how_strictly() {
    let on = |node: u64, nodes: &[u64], policy: Value| (node.into(), nodes.into(), policy);
    for (memory, expected) in [
        ("1G", vec![on(0, &[0], Value::Null)]),
        ("1G,host_numa_node=1", vec![on(1, &[1], "bind".into())]),
        (
            "3G,hugepages=on,host_nodes=0-1",
            vec![on(0, &[0], "bind".into()), on(1, &[1], "bind".into())],
        ),
        (
            "2G,host_nodes=1,policy=preferred",
            vec![
                on(0, &[0], "preferred".into()),
                on(1, &[1], "preferred".into()),
            ],
        ),
        (
            "1G,policy=interleave",
            vec![on(0, &[0, 1], "interleave".into())],
        ),
    ] {
        assert_eq!(regions(memory), expected, "{memory}");
    }
}

#[test]
fn the_text_says_how_nodes_were_chosen() {
    for (memory, line) in [
        (
            "1G,host_numa_node=1",
            "memory    1 GiB at 0x0 on 2 MiB hugepages (memfd), bound to node 1",
        ),
        (
            "1G,host_nodes=1,policy=preferred",
            "memory    1 GiB at 0x0 on 2 MiB hugepages (memfd), node 1 (preferred)",
        ),
        (
            "1G,policy=interleave",
            "memory    1 GiB at 0x0 on 2 MiB hugepages (memfd), interleaved over nodes 0-1",
        ),
    ] {
        let ran = plan(memory, "").exits_with(0);
        assert_eq!(ran.stdout.lines().next(), Some(line));
        assert!(!ran.stdout.contains("most free pages"), "{ran:#?}");
    }
    let ran = plan("1G", "").exits_with(0);
    assert!(ran.stdout.contains("\nnodes     where none is asked for, a zone is on the node with the most free pages if it fits there"), "{ran:#?}");
}

#[test]
fn pages_beyond_a_preferred_node_are_counted_in_a_warning() {
    let ran = plan("2G,host_nodes=1,policy=preferred", "").exits_with(0);
    assert_eq!(
        ran.stderr,
        "warning: The preferred node 1 has 758 of 1024 pages of 2 MiB: 266 are on node 0\n"
    );
}

#[test]
fn contradictions_are_usage_errors_with_the_legal_forms() {
    for (memory, fix) in [
        (
            "1G,host_numa_node=0,host_nodes=1",
            "host_numa_node=0 for one node, or host_nodes=0-1 for several",
        ),
        (
            "1G,policy=preferred",
            "host_nodes=0,policy=preferred, or policy=interleave for every node",
        ),
        ("1G,host_nodes=0-9", "host_numa_node=0"),
    ] {
        let report = plan(memory, "--json").exits_with(2).json();
        let (class, message, told) = error_of(&report);
        assert_eq!((class, told), ("usage", Some(fix)), "{message}");
    }
}
