//! What children of this process get of guest memory: nothing.

mod mappings;
mod requests;

use std::process::{Command, Stdio};

use mappings::mapped;
use prezero_memory::Backing;
use prezero_testkit::{Hugepages, MachineLock};
use requests::{PAGE, eager, huge, planned, reserved, zeroed};

const PAGES: u64 = 16;

#[test]
fn every_mapping_is_kept_from_forks_and_core_dumps() {
    let Some(_pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let ram = reserved(&planned(&eager(&[&huge(PAGES), "size=6M,hugepages=off"])));
    assert_eq!(ram.extents().count(), 2);
    for extent in ram.extents() {
        let mappings = mapped(extent.addr(), extent.plan().len().bytes());
        assert!(!mappings.is_empty());
        for mapping in mappings {
            assert!(mapping.has("dc") && mapping.has("dd"), "{mapping:?}");
            assert_eq!(mapping.has("hg"), extent.plan().backing() == Backing::Thp);
        }
    }
}

/// What a forked child finds at an address: its exit code, 0 for nothing, 1 for a mapping.
fn found_by_a_child(addr: u64) -> i32 {
    let mut status = 0;
    // SAFETY: the child makes two async-signal-safe system calls, on memory it owns, and ends.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork");
        if pid == 0 {
            let mut present = 0_u8;
            let result = libc::mincore(addr as *mut _, 4096, &raw mut present);
            libc::_exit(if result == 0 { 1 } else { 0 });
        }
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
    }
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}

#[test]
fn a_forked_child_does_not_have_the_memory() {
    let _lock = MachineLock::acquire();
    let ram = zeroed(&planned(&eager(&["size=6M,hugepages=off"])));
    let own = vec![0_u8; 1 << 20];
    assert_eq!(found_by_a_child((own.as_ptr() as u64 + 8192) & !4095), 1);
    for slot in ram.slots() {
        for offset in [0, (slot.len / 2) & !4095, slot.len - 4096] {
            assert_eq!(
                found_by_a_child(slot.hva + offset),
                0,
                "{slot:x?} + {offset:#x}"
            );
        }
    }
}

#[test]
fn a_forked_child_does_not_have_the_hugepages() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let ram = zeroed(&planned(&eager(&[&huge(PAGES)])));
    for slot in ram.slots() {
        for page in 0..PAGES {
            assert_eq!(found_by_a_child(slot.hva + page * PAGE), 0, "page {page}");
        }
    }
    drop(ram);
    pages.assert_clean();
}

#[test]
fn a_child_that_outlives_the_memory_keeps_no_page() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let ram = zeroed(&planned(&eager(&[&huge(PAGES)])));
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("cat starts");
    drop(ram);
    pages.assert_clean();
    assert!(
        child.try_wait().expect("our child").is_none(),
        "cat waits for its input"
    );
    drop(child.stdin.take());
    child.wait().expect("cat ends with its input");
}
