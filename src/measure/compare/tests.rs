use serde_json::{Value, json};

use super::*;

impl Pair {
    #[track_caller]
    fn ratio(&self) -> Ratio {
        self.ratio.expect("both are above zero")
    }
}

/// A document of `bench clear`: a row for each method, at 4 KiB and one thread, with these times of
/// clearing 1000 bytes.
fn clear(rows: &[(&str, &[u64])]) -> Value {
    let rows = rows.iter().map(|(method, samples)| {
        json!({
            "method": method, "chunk": 4096, "threads": 1,
            "bytes": 1000, "page_size": 2 << 20, "samples_ns": samples,
        })
    });
    json!({
        "schema": "prezero/bench-clear/1",
        "version": "0.1.0",
        "machine": {
            "id": "aa", "boot": "bb", "kernel": "6.18.1", "cpu": "AMD EPYC", "microcode": "0x1",
            "preempt": "lazy", "hypervisor": false, "default_hugepage_size": 2 << 20,
            "hugepages": [
                { "page_size": 2 << 20, "total": 512, "free": 17, "overcommit": 0 },
                { "page_size": 1 << 30, "total": 4, "free": 0, "overcommit": 2 },
            ],
            "mitigations": { "retbleed": "Mitigation: untrained return thunk; SMT enabled" },
        },
        "rows": rows.collect::<Vec<_>>(),
        "warnings": [],
    })
}

fn vm(rows: Value) -> Value {
    json!({ "schema": "prezero/bench-vm/1", "version": "0.1.0", "rows": rows })
}

fn vm_row(way: &str, peer: Option<&str>, samples: &[u64], bw: Option<f64>) -> Value {
    json!({
        "way": way, "peer": peer, "bytes": 4_u64 << 30, "page_size": 2 << 20, "workers": 2,
        "runs": samples.len(), "bw_gbps": bw, "bw_stdev": bw.map(|_| 0.5),
        "creation_ns": { "mean": 0, "samples": samples }, "first_instruction_ns": null,
    })
}

#[track_caller]
fn parsed(value: &Value) -> Document {
    Document::parse(value.to_string().as_bytes()).expect("a document")
}

#[track_caller]
fn compared(a: &Value, b: &Value) -> Comparison {
    compare(&parsed(a), &parsed(b))
}

#[track_caller]
fn refused(text: &str) -> String {
    Document::parse(text.as_bytes())
        .expect_err("it is none")
        .to_string()
}

#[track_caller]
fn close(found: f64, wanted: f64) {
    assert!((found - wanted).abs() < 1e-9, "{found} is not {wanted}");
}

#[test]
fn a_ratio_is_of_the_means_of_rates_with_both_deviations() {
    // Rates of 1, 2 and 3 GB/s: 2 ± 1; and of 8 twice, 8 ± 0.
    let a = clear(&[("movnti", &[1000, 500, 333])]);
    let mut b = clear(&[("movnti", &[125, 125])]);
    b["rows"][0]["page_size"] = json!(1 << 30);
    let found = compared(&a, &b);
    let [pair] = &found.pairs[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (pair.row.name.as_str(), pair.figure.name),
        ("movnti, 4K, 1 thread", "gbps")
    );
    let mean = (1.0 + 2.0 + 1000.0 / 333.0) / 3.0;
    close(pair.a.mean, mean);
    close(pair.ratio().mean, 8.0 / mean);
    let stdev = pair.a.stdev.expect("three runs");
    close(pair.ratio().stdev.expect("runs"), 8.0 / mean * stdev / mean);
    assert_eq!(pair.verdict(), Verdict::Better);
}

#[test]
fn which_direction_is_better_is_the_figure_s() {
    let row = |ns: &[u64], bw| vm(json!([vm_row("fresh", None, ns, Some(bw))]));
    let found = compared(&row(&[100, 101], 8.0), &row(&[200, 201], 16.0));
    let figures: Vec<_> = found
        .pairs
        .iter()
        .map(|pair| (pair.figure.name, pair.verdict()))
        .collect();
    assert_eq!(
        figures,
        [
            ("creation_ns", Verdict::Worse),
            ("bw_gbps", Verdict::Better)
        ]
    );
    assert_eq!(found.pairs[0].row.name, "fresh, 4G, on 2M, 2 workers");
    close(found.pairs[1].ratio().mean, 2.0);
    close(
        found.pairs[1].ratio().stdev.expect("both"),
        2.0 * (0.5_f64 / 8.0).hypot(0.5 / 16.0),
    );
}

#[test]
fn a_ratio_within_its_deviation_or_without_one_is_unclear() {
    let found = compared(&clear(&[("a", &[90, 110])]), &clear(&[("a", &[91, 112])]));
    assert_eq!(found.pairs[0].verdict(), Verdict::Unclear);
    let found = compared(&clear(&[("a", &[100])]), &clear(&[("a", &[10])]));
    assert_eq!(
        (found.pairs[0].ratio().stdev, found.pairs[0].verdict()),
        (None, Verdict::Unclear)
    );
}

#[test]
fn rows_are_found_by_name_and_not_by_place() {
    let a = clear(&[("a", &[10]), ("b", &[20]), ("c", &[30])]);
    let b = clear(&[("d", &[10]), ("c", &[30]), ("b", &[20])]);
    let found = compared(&a, &b);
    let names: Vec<_> = found
        .pairs
        .iter()
        .map(|pair| pair.row.name.as_str())
        .collect();
    assert_eq!(names, ["b, 4K, 1 thread", "c, 4K, 1 thread"]);
    assert!(found.pairs.iter().all(|pair| pair.ratio().mean == 1.0));
    assert_eq!(found.only_a, ["a, 4K, 1 thread"]);
    assert_eq!(found.only_b, ["d, 4K, 1 thread"]);
}

#[test]
fn a_peer_is_part_of_a_row_s_identity_and_a_figure_may_be_missing() {
    let a = vm(json!([
        vm_row("prealloc", Some("qemu"), &[100, 101], None),
        vm_row("prealloc", None, &[10, 11], Some(9.0)),
    ]));
    let found = compared(&a, &a);
    let figures: Vec<_> = found
        .pairs
        .iter()
        .map(|pair| (pair.row.name.as_str(), pair.figure.name))
        .collect();
    assert_eq!(
        figures,
        [
            ("prealloc, qemu, 4G, on 2M, 2 workers", "creation_ns"),
            ("prealloc, 4G, on 2M, 2 workers", "creation_ns"),
            ("prealloc, 4G, on 2M, 2 workers", "bw_gbps"),
        ]
    );
}

#[test]
fn a_neighbour_s_rows_are_told_by_working_set_and_method() {
    let figure = |mean: f64| json!({ "mean": mean, "stdev": 0.25, "min": 1, "max": 9 });
    let document = |lost: f64| {
        json!({
            "schema": "prezero/bench-neighbour/1",
            "rows": [
                { "working_set": 32 << 20, "method": null, "runs": 5, "ns_per_access": figure(2.0),
                  "background_gbps": null, "lost_ms_per_gib": null },
                { "working_set": 32 << 20, "method": "clzero", "runs": 5, "ns_per_access": figure(4.0),
                  "background_gbps": figure(20.0), "lost_ms_per_gib": figure(lost) },
            ],
        })
    };
    let names = |found: &Comparison| {
        let pairs = found.pairs.iter();
        pairs
            .map(|pair| format!("{}: {}", pair.row.name, pair.figure.name))
            .collect::<Vec<_>>()
    };
    let found = compared(&document(10.0), &document(5.0));
    let (alone, beside) = ("32M, alone: ", "32M, clzero: ");
    let wanted = [
        format!("{alone}ns_per_access"),
        format!("{beside}ns_per_access"),
        format!("{beside}lost_ms_per_gib"),
        format!("{beside}background_gbps"),
    ];
    assert_eq!(names(&found), wanted);
    assert_eq!(found.pairs[2].verdict(), Verdict::Better);
    // Less than nothing is lost where it is lost in the noise: there is no ratio of that.
    let found = compared(&document(10.0), &document(-0.5));
    assert_eq!(names(&found), wanted);
    assert_eq!(
        (found.pairs[2].ratio, found.pairs[2].verdict()),
        (None, Verdict::Unclear)
    );
}

#[test]
fn a_mapping_s_rows_have_their_mean_and_the_number_of_loops() {
    let document = |loops: u64| {
        json!({
            "schema": "prezero/bench-mmap/1",
            "rows": [{ "function": "populate", "bytes": 4_u64 << 30, "page_size": 2 << 20, "threads": 1,
                       "loops": loops, "gbps_mean": 9.0, "gbps_stdev": null, "samples_ns": [[1], [2]] }],
        })
    };
    let found = compared(&document(2), &document(3));
    assert_eq!(found.pairs[0].row.name, "populate, 4G, on 2M, 1 thread");
    assert_eq!(
        (found.pairs[0].ratio().mean, found.pairs[0].ratio().stdev),
        (1.0, None)
    );
    let [Difference { fact: "runs", .. }] = found.differences[..] else {
        panic!("{found:?}")
    };
}

#[test]
fn ratios_that_another_measurement_may_not_give_are_said() {
    let a = clear(&[("a", &[1000, 1001, 1000]), ("b", &[1000, 1100, 900])]);
    let b = clear(&[("a", &[1200, 1201, 1200]), ("b", &[1200, 1201, 1200])]);
    let found = compared(&a, &b);
    let [caution @ Caution::Repeat(_)] = &found.cautions[..] else {
        panic!("{found:?}")
    };
    let text = caution.to_string();
    assert!(
        text.contains("1 of 2 ratios") && text.contains("clearing of b, 4K, 1 thread"),
        "{text}"
    );
    assert_eq!(compared(&a, &a).cautions, [Caution::Same]);
}

#[test]
fn rows_of_one_name_that_are_not_the_same_thing_are_said() {
    let document = |method: &str, version: &str| {
        let mut row = vm_row("recycled-uncached", None, &[1000, 1001, 1000], None);
        row["method"] = json!(method);
        let mut document = vm(json!([
            row,
            vm_row("prealloc", Some("qemu"), &[9000, 9001, 9002], None)
        ]));
        document["peers"] = json!([{ "peer": "qemu", "version": version }]);
        document
    };
    let facts = |a: &Value, b: &Value| {
        let found = compared(a, b);
        let settings = found.cautions.iter().find_map(|caution| match caution {
            Caution::Settings { facts } => Some((facts.clone(), caution.to_string())),
            _ => None,
        });
        (settings, found.differences)
    };
    let a = document("clzero", "7.2");
    assert_eq!(facts(&a, &document("clzero", "7.2")), (None, Vec::new()));
    let (settings, differences) = facts(&a, &document("movnti", "10.0"));
    let (named, text) = settings.expect("they are not the same");
    assert_eq!(named, ["method", "other monitors"]);
    assert!(
        text.contains("do not have the same method, other monitors: rows"),
        "{text}"
    );
    let of = |fact, a: &str, b: &str| Difference {
        fact,
        a: Some(a.to_owned()),
        b: Some(b.to_owned()),
    };
    let name = "recycled-uncached, 4G, on 2M, 2 workers";
    assert_eq!(
        differences,
        [
            of(
                "method",
                &format!("clzero ({name})"),
                &format!("movnti ({name})")
            ),
            of("other monitors", "qemu: 7.2", "qemu: 10.0"),
        ]
    );
    // More sizes on one side are other rows, and no other thing under one name.
    let mut more = a.clone();
    let mut row = a["rows"][0].clone();
    row["bytes"] = json!(1 << 30);
    more["rows"].as_array_mut().expect("rows").push(row);
    assert_eq!(facts(&a, &more).0, None);

    let neighbour = |rate: Value| {
        let figure = json!({ "mean": 2.0, "stdev": 0.001 });
        json!({
            "schema": "prezero/bench-neighbour/1",
            "background": { "bytes": 1 << 30, "page_size": 2 << 20, "rate": rate },
            "cpus": { "foreground": 0, "background": [1], "same_cache": true, "same_core": false },
            "rows": [{ "working_set": 32 << 20, "method": null, "runs": 5, "ns_per_access": figure }],
        })
    };
    let (settings, differences) = facts(&neighbour(Value::Null), &neighbour(json!(4_u64 << 30)));
    assert_eq!(settings.expect("another rate").0, ["rate of clearing"]);
    let wanted = of("rate of clearing", "as fast as it goes", "4 GiB a second");
    assert_eq!(differences, [wanted]);
    let mut other = neighbour(Value::Null);
    other["cpus"]["background"] = json!([1, 2]);
    let (settings, _) = facts(&neighbour(Value::Null), &other);
    assert_eq!(settings.expect("more threads").0, ["threads that clear"]);
    let clear_of = |bytes: u64| {
        let mut document = clear(&[("a", &[1000, 1001, 1000])]);
        document["rows"][0]["bytes"] = json!(bytes);
        document
    };
    let (settings, differences) = facts(&clear_of(1024), &clear_of(2048));
    assert_eq!(settings.expect("more memory").0, ["memory"]);
    assert_eq!(differences, [of("memory", "1 KiB", "2 KiB")]);
}

/// A document and the same with one fact changed.
fn changed(pointer: &str, to: Value) -> Comparison {
    let a = clear(&[("a", &[10, 11])]);
    let mut b = a.clone();
    *b.pointer_mut(pointer).expect(pointer) = to;
    compared(&a, &b)
}

#[test]
fn what_differs_is_listed_and_what_does_not_is_not() {
    for (pointer, to, fact, a, b) in [
        (
            "/version",
            json!("0.2.0"),
            "version of prezero",
            "0.1.0",
            "0.2.0",
        ),
        (
            "/machine/microcode",
            json!("0x2"),
            "microcode",
            "0x1",
            "0x2",
        ),
        (
            "/machine/preempt",
            json!("full"),
            "preemption",
            "lazy",
            "full",
        ),
        (
            "/machine/hypervisor",
            json!(true),
            "virtual machine",
            "no",
            "yes",
        ),
        (
            "/machine/hugepages/0/total",
            json!(0),
            "hugepages",
            "512 of 2 MiB, 4 of 1 GiB (and 2 more on demand)",
            "0 of 2 MiB, 4 of 1 GiB (and 2 more on demand)",
        ),
        (
            "/machine/mitigations/retbleed",
            json!("Vulnerable"),
            "mitigations",
            "retbleed: untrained return thunk",
            "retbleed: Vulnerable",
        ),
        (
            "/machine/default_hugepage_size",
            json!(1 << 30),
            "default hugepage",
            "2 MiB",
            "1 GiB",
        ),
        (
            "/rows/0/page_size",
            json!(1 << 30),
            "page size",
            "2 MiB",
            "1 GiB",
        ),
        (
            "/rows/0/bytes",
            json!(2048),
            "memory",
            "1000 bytes",
            "2 KiB",
        ),
        ("/rows/0/samples_ns", json!([10, 11, 12]), "runs", "2", "3"),
    ] {
        let found = changed(pointer, to);
        let (a, b) = (Some(a.to_owned()), Some(b.to_owned()));
        assert_eq!(found.differences, [Difference { fact, a, b }], "{pointer}");
    }
    assert_eq!(
        changed("/machine/hugepages/0/free", json!(3)).differences,
        []
    );
}

#[test]
fn other_kernels_and_machines_are_never_compared_silently() {
    let text = |found: Comparison| {
        found
            .cautions
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let kernels = text(changed("/machine/kernel", json!("7.0.1")));
    assert!(
        kernels.contains("different kernels (6.18.1 and 7.0.1)"),
        "{kernels}"
    );

    let a = clear(&[("a", &[10, 11])]);
    let mut b = a.clone();
    b["machine"]["boot"] = json!("cc");
    b["version"] = json!("0.2.0");
    let boots = text(compared(&a, &b));
    assert!(
        boots.contains("different boots of one machine, or of copies"),
        "{boots}"
    );
    b["machine"]["cpu"] = json!("Intel Xeon");
    let copies = text(compared(&a, &b));
    assert!(
        copies.contains("different machines"),
        "one image on two machines: {copies}"
    );
    assert!(
        copies.contains("different CPUs (AMD EPYC and Intel Xeon)"),
        "{copies}"
    );
    b["machine"]["cpu"] = json!("AMD EPYC");
    b["machine"]["id"] = json!("dd");
    let machines = text(compared(&a, &b));
    assert!(machines.contains("different machines"), "{machines}");
    b["machine"] = Value::Null;
    let unknown = text(compared(&a, &b));
    assert!(
        unknown.contains("B does not say which machine"),
        "{unknown}"
    );
    assert_eq!(compared(&b, &b).cautions, [Caution::Same]);
}

#[test]
fn one_boot_of_one_machine_earns_no_caution() {
    let a = clear(&[("a", &[1000, 1001, 1000])]);
    let b = clear(&[("a", &[1200, 1201, 1200])]);
    assert_eq!(compared(&a, &b).cautions, []);
    let mut noisy = b;
    noisy["warnings"] = json!(["1 of 1 rows vary"]);
    let warned = Caution::Warned {
        which: "B",
        count: 1,
    };
    assert_eq!(compared(&a, &noisy).cautions, [warned]);
}

#[test]
fn a_document_before_machines_were_recorded_tells_by_its_host() {
    let old = |kernel: &str| {
        let mut old = clear(&[("a", &[1000, 1001, 1000])]);
        old["machine"] = Value::Null;
        old["host"] = json!({ "kernel": kernel, "cpu": "AMD EPYC" });
        old
    };
    let found = compared(&old("6.1"), &old("6.18"));
    assert_eq!(found.differences.len(), 1);
    assert_eq!(
        found.cautions,
        [
            Caution::Kernels {
                a: "6.1".to_owned(),
                b: "6.18".to_owned()
            },
            Caution::Unknown {
                who: "Neither A nor B says"
            },
        ]
    );
}

#[test]
fn what_is_no_document_is_refused_with_its_place() {
    let whole = serde_json::to_string_pretty(&clear(&[("a", &[10, 11])])).expect("JSON");
    let half = refused(&whole[..whole.len() / 2]);
    assert!(half.contains("line ") && half.contains("column "), "{half}");
    for (text, part) in [
        ("", "line 1 column 0"),
        ("{\"schema\": \u{1b}", "line 1"),
        ("[1, 2]", "name of a schema at schema"),
        ("{\"schema\": 7}", "name of a schema at schema"),
        (
            "{\"schema\": \"prezero/run/1\"}",
            "has the schema prezero/run/1",
        ),
        (
            "{\"schema\": \"prezero/bench-clear/2\"}",
            "none of prezero/bench-clear/1, ",
        ),
        (
            "{\"schema\": \"prezero/bench-clear/1\"}",
            "no array at rows",
        ),
        (
            "{\"schema\": \"prezero/bench-clear/1\", \"rows\": []}",
            "has no rows",
        ),
    ] {
        let error = refused(text);
        assert!(error.contains(part), "{text}: {error}");
    }
    let deep = format!("{{\"schema\": {}", "[".repeat(100_000));
    assert!(
        refused(&deep).contains("recursion limit"),
        "{}",
        refused(&deep)
    );
}

#[test]
fn a_field_that_is_not_what_it_has_to_be_is_refused_with_its_place() {
    for (pointer, to, part) in [
        (
            "/rows/1/samples_ns/2",
            json!(-5),
            "nanoseconds above zero at rows[1].samples_ns[2]",
        ),
        ("/rows/1/samples_ns/0", json!("x"), "rows[1].samples_ns[0]"),
        ("/rows/1/samples_ns/0", json!(0), "rows[1].samples_ns[0]"),
        (
            "/rows/0/samples_ns",
            json!([]),
            "array of samples at rows[0].samples_ns",
        ),
        ("/rows/0/samples_ns", Value::Null, "no figure at rows[0]"),
        (
            "/rows/0/bytes",
            json!("1G"),
            "number of bytes at rows[0].bytes",
        ),
        ("/rows/0/method", Value::Null, "word at rows[0].method"),
        (
            "/rows/0/threads",
            json!(0),
            "number above zero at rows[0].threads",
        ),
        (
            "/rows/0/chunk",
            json!(1.5),
            "number of bytes at rows[0].chunk",
        ),
        ("/rows/1", json!(7), "word at rows[1].method"),
        (
            "/rows/1/method",
            json!("a"),
            "the row 'a, 4K, 1 thread' a second time at rows[1]",
        ),
    ] {
        let mut value = clear(&[("a", &[1, 2, 3]), ("b", &[1, 2, 3])]);
        *value.pointer_mut(pointer).expect(pointer) = to;
        let error = refused(&value.to_string());
        assert!(error.contains(part), "{pointer}: {error}");
    }
}

#[test]
fn a_document_of_a_failure_says_which() {
    let mut failed = clear(&[]);
    failed["error"] = json!({ "class": "shortage", "message": "Too few pages" });
    let error = refused(&failed.to_string());
    assert!(
        error.contains("measurement failed: Too few pages"),
        "{error}"
    );
}

#[test]
fn what_a_document_says_cannot_move_the_cursor() {
    let found = compared(
        &clear(&[("a\u{1b}[2J", &[10])]),
        &clear(&[("a\u{1b}[2J", &[10])]),
    );
    assert_eq!(found.pairs[0].row.name, "a[2J, 4K, 1 thread");
}
