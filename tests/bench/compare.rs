//! `prezero bench compare` from the outside.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use prezero_testkit::Hugepages;
use serde_json::{Value, json};

use crate::command::{Ran, error_of, finish, prezero};
use crate::contract::{SMALL, list, measured, number};

/// A directory for documents.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn put(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, text).expect("writable");
        path.to_str().expect("UTF-8").to_owned()
    }

    /// A document of a made-up measurement, with `change` made to it.
    fn document(&self, name: &str, change: impl FnOnce(&mut Value)) -> String {
        let mut value = json!({
            "schema": "prezero/bench-clear/1",
            "version": "0.1.0",
            "machine": { "id": "aa", "boot": "bb", "kernel": "6.18.1", "cpu": "AMD EPYC" },
            "rows": [
                { "method": "cached", "chunk": 4096, "threads": 1, "bytes": 100_000, "page_size": 4096,
                  "samples_ns": [10_000, 10_010, 9_990] },
                { "method": "movnti", "chunk": null, "threads": 2, "bytes": 100_000, "page_size": 4096,
                  "samples_ns": [5_000, 5_005, 4_995] },
            ],
            "warnings": [],
        });
        change(&mut value);
        self.put(name, serde_json::to_string_pretty(&value).expect("JSON"))
    }
}

fn compare(a: &str, b: &str) -> Ran {
    finish(prezero(&format!("bench compare {a} {b}")))
}

#[track_caller]
fn compared(a: &str, b: &str, code: i32) -> Value {
    let ran = finish(prezero(&format!("bench compare {a} {b} --json"))).exits_with(code);
    let report = ran.json();
    assert_eq!(report["schema"], "prezero/bench-compare/1");
    assert_eq!(report.get("error").is_some(), code != 0, "{report:#}");
    for warning in list(&report, "warnings") {
        let warning = warning.as_str().expect("text");
        assert!(
            ran.stderr.contains(&format!("warning: {warning}\n")),
            "{ran:#?}"
        );
    }
    report
}

/// Runs it in text and in JSON mode, which have to say the same; message and fix.
#[track_caller]
fn refused(a: &str, b: &str, code: i32) -> (String, String) {
    let text = compare(a, b).exits_with(code);
    let (error, fix) = text.error_and_fix();
    let report = compared(a, b, code);
    let (_, message, json_fix) = error_of(&report);
    assert_eq!((message, json_fix), (error, Some(fix)));
    (error.to_owned(), fix.to_owned())
}

#[test]
fn two_measurements_of_this_machine_are_compared_without_doubt_about_the_machine() {
    let Some(pages) = Hugepages::take(2 << 20, 32) else {
        return;
    };
    let files = Files::new();
    let args = format!("{SMALL} --method portable,cached --chunk 4K,2M --threads 1");
    let paths = ["a.json", "b.json"].map(|name| {
        let report = measured(&args, 0);
        files.put(name, report.to_string())
    });
    pages.assert_clean();
    let report = compared(&paths[0], &paths[1], 0);
    let rows = list(&report, "rows");
    assert_eq!(rows.len(), 4);
    let document = |path: &str| -> Value {
        serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON")
    };
    let (a, b) = (document(&paths[0]), document(&paths[1]));
    for (n, row) in rows.iter().enumerate() {
        assert_eq!(
            (&row["figure"], &row["better"]),
            (&"gbps".into(), &"higher".into())
        );
        let means = [&a, &b].map(|document| number(&document["rows"][n], "gbps_mean"));
        let ratio = number(&row["ratio"], "mean");
        assert!(
            (ratio / (means[1] / means[0]) - 1.0).abs() < 1e-6,
            "{row:#}"
        );
        assert!(number(&row["ratio"], "stdev") > 0.0, "{row:#}");
    }
    for warning in list(&report, "warnings") {
        let warning = warning.as_str().expect("text");
        let known = ["was measured with", "apart when measured again"];
        assert!(known.iter().any(|part| warning.contains(part)), "{warning}");
    }
    let facts = list(&report, "differences")
        .iter()
        .map(|differing| &differing["fact"]);
    // A neighbour may have changed the pools.
    assert!(facts.clone().all(|fact| fact == "hugepages"), "{report:#}");
}

#[test]
fn another_kernel_is_said_first_in_text_and_in_the_document() {
    let files = Files::new();
    let a = files.document("a.json", |_| {});
    let b = files.document("b.json", |b| {
        b["machine"]["kernel"] = "7.0.1".into();
        b["machine"]["boot"] = "cc".into();
    });
    let text = compare(&a, &b).exits_with(0);
    let first = text.stdout.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("warning: A and B are of different kernels (6.18.1 and 7.0.1)"),
        "{first}"
    );
    assert!(text.stdout.contains("higher is better"), "{text:#?}");
    let report = compared(&a, &b, 0);
    let warnings = list(&report, "warnings");
    assert_eq!(warnings.len(), 2, "{report:#}");
    assert_eq!(
        report["differences"],
        json!([{ "fact": "kernel", "a": "6.18.1", "b": "7.0.1" }])
    );
}

#[test]
fn rows_of_one_side_only_are_named() {
    let files = Files::new();
    let a = files.document("a.json", |a| a["rows"][0]["method"] = "clzero".into());
    let b = files.document("b.json", |_| {});
    let report = compared(&a, &b, 0);
    assert_eq!(report["only_a"], json!(["clzero, 4K, 1 thread"]));
    assert_eq!(report["only_b"], json!(["cached, 4K, 1 thread"]));
    assert_eq!(
        report["rows"][0]["key"],
        json!({ "method": "movnti", "chunk": null, "threads": 2 })
    );
    assert_eq!(report["rows"][0]["verdict"], "unclear");
}

#[test]
fn documents_without_a_common_row_are_refused() {
    let files = Files::new();
    let a = files.document("a.json", |_| {});
    let b = files.document("b.json", |b| {
        b["rows"].as_array_mut().expect("rows").remove(0);
        b["rows"][0]["threads"] = 7.into();
    });
    let (error, _) = refused(&a, &b, 2);
    assert!(error.contains("no row in common"), "{error}");
}

#[test]
fn other_schemas_are_refused() {
    let files = Files::new();
    let a = files.document("a.json", |_| {});
    let b = files.put(
        "b.json",
        json!({
            "schema": "prezero/bench-vm/1",
            "rows": [{ "way": "fresh", "peer": null, "bytes": 4096, "page_size": 4096, "workers": 1,
                       "creation_ns": { "samples": [1, 2] } }],
        })
        .to_string(),
    );
    let (error, _) = refused(&a, &b, 2);
    assert!(
        error.contains("prezero/bench-clear/1") && error.contains("prezero/bench-vm/1"),
        "{error}"
    );
    let run = files.put("run.json", "{\"schema\": \"prezero/run/1\"}");
    let (error, fix) = refused(&a, &run, 2);
    assert!(
        error.contains("run.json has the schema prezero/run/1"),
        "{error}"
    );
    assert!(fix.contains("--help"), "{fix}");
}

#[test]
fn what_is_no_document_is_refused_with_file_and_place() {
    let files = Files::new();
    let good = files.document("good.json", |_| {});
    let whole = fs::read(&good).expect("written");
    let half = files.put("half.json", &whole[..whole.len() / 2]);
    let (error, _) = refused(&good, &half, 2);
    assert!(
        error.contains("half.json is no whole JSON document") && error.contains(" line "),
        "{error}"
    );
    let noise = files.put("noise.json", [0xff, 0xfe, 0x00]);
    let (error, _) = refused(&noise, &good, 2);
    assert!(
        error.contains("noise.json") && error.contains("line 1 column 1"),
        "{error}"
    );
    let odd = files.document("odd.json", |odd| {
        odd["rows"][1]["samples_ns"][2] = json!("fast")
    });
    let (error, _) = refused(&good, &odd, 2);
    assert!(
        error.contains("odd.json has no number of nanoseconds above zero at rows[1].samples_ns[2]"),
        "{error}"
    );
    let (error, _) = refused(&good, "/nowhere/b.json", 2);
    assert!(error.contains("/nowhere/b.json cannot be read"), "{error}");
    let (error, _) = refused("/", &good, 2);
    assert!(error.contains("/ cannot be read"), "{error}");
}

#[test]
fn a_file_without_end_is_refused_and_not_read_for_ever() {
    let files = Files::new();
    let good = files.document("good.json", |_| {});
    let (error, _) = refused(&good, "/dev/zero", 2);
    assert!(error.contains("/dev/zero is larger than 16 MiB"), "{error}");
}

#[test]
fn one_document_may_come_through_a_pipe() {
    let files = Files::new();
    let a = files.document("a.json", |_| {});
    let b = files.document("b.json", |b| {
        b["rows"][0]["samples_ns"] = json!([20_000, 20_001])
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_prezero"));
    command.args(["bench", "compare", &a, "/dev/stdin", "--json"]);
    let input = fs::File::open(Path::new(&b)).expect("written");
    let output = command.stdin(Stdio::from(input)).output().expect("it runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(report["rows"][0]["verdict"], "worse", "{report:#}");
}

#[test]
fn what_clap_refuses_is_a_document_too() {
    let ran = finish(prezero("bench compare a.json --json")).exits_with(2);
    let report = ran.json();
    assert_eq!(report["schema"], "prezero/bench-compare/1");
    assert_eq!(error_of(&report).2, Some("prezero bench compare --help"));
}

/// The records of this repository were made by this instrument, some before machines were recorded.
#[test]
fn the_recorded_measurement_can_be_compared() {
    let files = Files::new();
    let record = format!("{}/benches/results/clear.json", env!("CARGO_MANIFEST_DIR"));
    let mut value: Value =
        serde_json::from_slice(&fs::read(&record).expect("it is there")).expect("JSON");
    value["warnings"] = json!([]);
    let copy = files.put("copy.json", value.to_string());
    let report = compared(&record, &copy, 0);
    assert_eq!(list(&report, "rows").len(), list(&value, "rows").len());
    let same = |row: &Value| number(&row["ratio"], "mean") == 1.0 && row["verdict"] == "unclear";
    assert!(list(&report, "rows").iter().all(same), "{report:#}");
}
