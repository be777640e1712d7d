//! `path=` is tried, and judged as `run` judges it.

use std::path::Path;

use prezero_testkit::{Hugepages, require_kvm};

use crate::command::finish;
use crate::mounts::{MountPoint, prezero_after};

const PREZERO: &str = env!("CARGO_BIN_EXE_prezero");

#[test]
fn a_path_where_no_file_can_be_made_has_the_code_and_the_message_of_run() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 << 20, 8) else {
        return;
    };
    let point = MountPoint::new();
    let dir = point.path().display().to_string();
    let setup = format!("{}touch {dir}/file && ", point.mount("mode=0755"));
    for (below, code) in [("", 0), ("/file", 2), ("/missing", 2)] {
        let said = |command: &str| {
            let spec = format!("size=16M,hugepages=on,path={dir}{below}");
            let args = format!("{command} --memory {spec}");
            prezero_after(&setup, "", Path::new(PREZERO), &args).map(finish)
        };
        let (Some(doctor), Some(run)) = (said("doctor"), said("run")) else {
            return;
        };
        let (doctor, run) = (doctor.exits_with(code), run.exits_with(code));
        assert_eq!(doctor.stderr, run.stderr, "{below}");
    }
    pages.assert_clean();
}
