//! An ordinary user can measure: a memfd on hugepages needs no rights.

use prezero_testkit::Hugepages;

use crate::command::{PublicCopy, finish};
use crate::contract::{SMALL, document, list};
use crate::private_dev::{self, USER, as_user};

#[test]
fn an_ordinary_user_can_measure() {
    let Some(pages) = Hugepages::take(2 << 20, 32) else {
        return;
    };
    let copy = PublicCopy::new();
    let args = format!("bench clear {SMALL} --method cached --threads 1 --json");
    let setup = "ulimit -l 0 &&";
    let Some(command) = private_dev::prezero(setup, &as_user(USER), &copy.binary(), &args) else {
        return;
    };
    let report = document(finish(command), 0);
    pages.assert_clean();
    assert_eq!(list(&report, "rows").len(), 4);
}

#[test]
fn an_ordinary_user_can_measure_fresh_memory_and_neighbours() {
    let Some(pages) = Hugepages::take(2 << 20, 32) else {
        return;
    };
    let copy = PublicCopy::new();
    for args in [
        "bench mmap -p 2M -s 16M -l 1",
        "bench neighbour --memory size=64M,hugepage_size=2M --rate 1G --runs 1 --working-set 4K",
    ] {
        let setup = "ulimit -l 0 &&";
        let Some(command) = private_dev::prezero(setup, &as_user(USER), &copy.binary(), args)
        else {
            return;
        };
        let ran = finish(command).exits_with(0);
        assert!(!ran.stdout.is_empty(), "{ran:#?}");
        pages.assert_clean();
    }
}
