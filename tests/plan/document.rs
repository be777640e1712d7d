//! Schema prezero/plan/1: the document on stdout, on success and on failure.

use serde_json::Value;

use crate::command::{error_of, finish, prezero};

const SUCCESS: [&str; 8] = [
    "host", "regions", "request", "schema", "slots", "version", "warnings", "workers",
];

#[track_caller]
fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().unwrap_or_else(|| panic!("{value:#}"));
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[track_caller]
fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("{key}: {value:#}"))
}

#[test]
fn a_plan_has_the_keys_of_a_run_and_no_figures() {
    let args = "plan --memory size=64M,hugepages=off --prealloc --threads 2 --json";
    let ran = finish(prezero(args)).exits_with(0);
    let report = ran.json();
    assert_eq!(report["schema"], "prezero/plan/1");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(keys(&report), SUCCESS);
    assert_eq!(
        keys(&report["host"]),
        ["cpu", "hypervisor", "kernel", "nodes", "preempt"]
    );
    let request = &report["request"];
    assert_eq!(
        (&request["bytes"], &request["prealloc"]),
        (&(64 << 20).into(), &"eager".into())
    );
    let regions = list(&report, "regions");
    let bytes = |list: &[Value]| {
        list.iter()
            .filter_map(|item| item["len"].as_u64())
            .sum::<u64>()
    };
    assert_eq!(bytes(regions), 64 << 20);
    assert_eq!(bytes(list(&report, "slots")), 64 << 20);
    for region in regions {
        let expected = [
            "backing",
            "cleared_by",
            "gpa",
            "len",
            "node",
            "nodes",
            "origin",
            "page_size",
            "policy",
        ];
        assert_eq!(keys(region), expected);
    }
    let workers = list(&report, "workers");
    assert!((1..=2).contains(&workers.len()), "{report:#}");
    for worker in workers {
        assert_eq!(keys(worker), ["cpu", "node", "remote"]);
    }
    let off = finish(prezero("plan --memory size=64M,hugepages=off --json"))
        .exits_with(0)
        .json();
    assert_eq!(off["request"]["prealloc"], "off");
    assert_eq!(list(&off, "workers").len(), 0, "{off:#}");
}

#[test]
fn a_refusal_is_one_document_too_and_the_text_says_the_same() {
    for (args, code, class) in [
        ("--memory 0", 2, "usage"),
        ("--memory=-1", 2, "usage"),
        ("--memory 1.5G", 2, "usage"),
        ("--memory size=19M,hugepage_size=2M", 2, "usage"),
        ("--memory 18446744073709551615", 2, "usage"),
        ("--memory 18446744073709551616", 2, "usage"),
        ("--memory 64M,huge=on", 2, "usage"),
        ("--memory 64M,hugepages=off,host_numa_node=99", 2, "usage"),
        (
            "--memory 64M,hugepages=off --prealloc --threads 0",
            2,
            "usage",
        ),
        (
            "--memory 16T,hugepages=off --prealloc --root tests/fixtures/hosts/one-node",
            3,
            "shortage",
        ),
        ("--memory 1G,hugepages=on,hugepage_size=64K", 4, "host"),
    ] {
        let json = finish(prezero(&format!("plan {args} --json"))).exits_with(code);
        let report = json.json();
        assert_eq!(report["schema"], "prezero/plan/1");
        let (found, message, fix) = error_of(&report);
        assert_eq!(found, class, "{args}: {report:#}");
        let text = finish(prezero(&format!("plan {args}"))).exits_with(code);
        assert_eq!(text.stdout, "", "{text:#?}");
        assert_eq!(text.error_and_fix(), (message, fix.unwrap_or_default()));
    }
}

#[test]
fn what_clap_refuses_is_a_document_too() {
    for args in [
        "--no-such-option",
        "--memory 1G --memory-zone 1G",
        "--memory 1G --verify",
    ] {
        let ran = finish(prezero(&format!("plan {args} --json"))).exits_with(2);
        let report = ran.json();
        assert_eq!(report["schema"], "prezero/plan/1");
        assert_eq!(error_of(&report).0, "usage");
    }
}

#[test]
fn the_text_is_on_stdout_and_the_warnings_are_not() {
    // One thread is too few for so many nodes.
    let root = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/hosts/eight-nodes-16t"
    );
    let args = format!("plan --memory 12T --prealloc --threads 1 --root {root}");
    let ran = finish(prezero(&args)).exits_with(0);
    assert!(ran.stderr.starts_with("warning: "), "{ran:#?}");
    assert!(!ran.stdout.contains("warning"), "{ran:#?}");
    let ran = finish(prezero("plan --memory size=64M,hugepages=off --prealloc")).exits_with(0);
    assert!(ran.stdout.contains("64 MiB"), "{ran:#?}");
    assert_eq!(ran.stderr, "");
}
