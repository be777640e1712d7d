use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use prezero_host::{Host, PageSize};
use prezero_testkit::{Hugepages, PrivateMount};

use super::*;
use crate::control::Control;
use crate::size::PageBytes;

const PAGE: u64 = 2 << 20;
const SEGMENT: u64 = 2 * PAGE;

/// Everything that is free.
const ALL: TakeRequest = TakeRequest {
    node: None,
    max_bytes: u64::MAX,
    exact: None,
};

/// A pool of so many clean segments on the host's first node.
struct Made {
    pool: Pool,
    host: Host,
    _mount: PrivateMount,
    _pages: Hugepages,
}

impl Made {
    #[track_caller]
    fn of(segments: u64) -> Option<Self> {
        let pages = Hugepages::take(PAGE, segments * SEGMENT / PAGE)?;
        let mount = PrivateMount::hugetlbfs(PAGE)?;
        let host = Host::probe();
        let request = PoolRequest {
            bytes: segments * SEGMENT,
            segment: PageBytes::new(SEGMENT, PageSize::HUGE_2M).unwrap(),
            nodes: vec![host.nodes[0].id],
            exchange_only: false,
        };
        let dir = mount.path().join("pool");
        let (pool, _) = Pool::create(&dir, &request, &host, None, &Control::default()).unwrap();
        Some(Self {
            pool,
            host,
            _mount: mount,
            _pages: pages,
        })
    }

    fn scrub(&self) -> ScrubReport {
        let request = ScrubRequest::default();
        self.pool
            .scrub(&self.host, &request, &Control::default())
            .unwrap()
    }

    fn take_one_clean(&self) -> Result<(Lease, ScrubReport), PoolError> {
        let request = ScrubRequest::default();
        self.pool
            .take_one_clean(SEGMENT, None, &self.host, &request, &Control::default())
    }
}

/// Fails with `errno` for the second page of whatever it is called for first.
fn second_page<const ERRNO: i32>(addr: u64, len: u64) -> io::Result<()> {
    static START: AtomicU64 = AtomicU64::new(0);
    if len > PAGE {
        START.store(addr, Ordering::Relaxed);
    }
    match len > PAGE || addr == START.load(Ordering::Relaxed) + PAGE {
        true => Err(io::Error::from_raw_os_error(ERRNO)),
        false => crate::sys::populate_write(addr, len),
    }
}

/// What scrubbing says of a segment with a bad page, and the pool.
fn scrubbed_with(touch: mapped::Touch, test: impl FnOnce(&Pool, ScrubReport)) {
    let Some(mut made) = Made::of(1) else {
        return;
    };
    drop(made.pool.take(&ALL).unwrap());
    *DIR.lock().unwrap() = Some(made.pool.path().to_owned());
    made.pool.touch = touch;
    let report = made.scrub();
    assert_eq!((report.segments, report.left.len()), (0, 1), "{report:?}");
    test(&made.pool, report);
}

#[test]
fn a_poisoned_page_retires_its_segment() {
    scrubbed_with(second_page::<{ libc::EHWPOISON }>, |pool, report| {
        let left = &report.left[0];
        assert_eq!(left.left, Left::Poisoned { offset: PAGE });
        let status = pool.status().unwrap();
        assert_eq!(status.segments[0].name.state, State::Retired);
        assert_eq!(status.segments[0].path, left.path);
        let text = left.to_string();
        let said = format!(
            "is retired: the page at offset {PAGE:#x} on node {} has a hardware error",
            left.node
        );
        assert!(text.contains(&said), "{text}");
    });
}

#[test]
fn a_page_that_cannot_be_touched_leaves_its_segment_dirty() {
    scrubbed_with(second_page::<{ libc::EFAULT }>, |pool, report| {
        let errno = libc::EFAULT;
        let offset = PAGE;
        assert_eq!(report.left[0].left, Left::Untouchable { offset, errno });
        assert_eq!(pool.status().unwrap().segments[0].name.state, State::Dirty);
    });
}

/// Opens the only dirty segment of the pool that [`DIR`] is, as a stranger who comes late.
fn opened_meanwhile(addr: u64, len: u64) -> io::Result<()> {
    let dir = DIR.lock().unwrap();
    let node = std::fs::read_dir(dir.as_ref().unwrap())?.next().unwrap()?;
    let segment = std::fs::read_dir(node.path())?.next().unwrap()?;
    *STRANGER.lock().unwrap() = Some(std::fs::File::open(segment.path())?);
    crate::sys::populate_write(addr, len)
}

static DIR: Mutex<Option<PathBuf>> = Mutex::new(None);
static STRANGER: Mutex<Option<std::fs::File>> = Mutex::new(None);

#[test]
fn a_segment_that_was_opened_while_it_was_cleared_stays_dirty() {
    let touch = |addr, len| opened_meanwhile(addr, len);
    scrubbed_with(touch, |pool, report| {
        assert_eq!(report.left[0].left, Left::Opened);
        let status = pool.status().unwrap();
        assert_eq!(status.segments[0].name.state, State::Dirty);
        assert!(matches!(status.segments[0].usage, Use::Leased { .. }));
        *STRANGER.lock().unwrap() = None;
        assert_eq!(pool.take(&ALL).unwrap().len(), 1);
    });
}

/// Of the first segment that it is called for, a page is poisoned; the next one is sound.
fn poisoned_once(addr: u64, len: u64) -> io::Result<()> {
    static WHOLE: AtomicU64 = AtomicU64::new(0);
    let nth = WHOLE.fetch_add(u64::from(len > PAGE), Ordering::Relaxed);
    match nth {
        0 => Err(io::Error::from_raw_os_error(libc::EHWPOISON)),
        1 if len == PAGE => Err(io::Error::from_raw_os_error(libc::EHWPOISON)),
        _ => crate::sys::populate_write(addr, len),
    }
}

#[test]
fn a_poisoned_segment_is_retired_and_another_one_leased() {
    let Some(mut made) = Made::of(2) else {
        return;
    };
    drop(made.pool.take(&ALL).unwrap());
    made.pool.touch = poisoned_once;
    let (lease, report) = made.take_one_clean().unwrap();
    assert_eq!(lease.origin(), crate::Origin::Clean);
    assert!(matches!(report.left[0].left, Left::Poisoned { .. }));
    let total = made.pool.status().unwrap().totals[0];
    assert_eq!((total.retired, total.leased), (1, 1));
}

#[test]
fn pages_on_another_node_retire_their_segment() {
    let Some(mut made) = Made::of(1) else {
        return;
    };
    drop(made.pool.take(&ALL).unwrap());
    // Pages stay where they are; the directory says where they should be.
    made.pool.has_node = |_| true;
    let node = 4095;
    let (dir, home) = (made.pool.path(), made.host.nodes[0].id);
    let elsewhere = dir.join(format!("node{node}"));
    std::fs::rename(dir.join(format!("node{home}")), &elsewhere).unwrap();
    let report = made.scrub();
    assert_eq!((report.segments, report.left.len()), (0, 1), "{report:?}");
    let (left, found) = (&report.left[0], home);
    assert_eq!(left.left, Left::Elsewhere { offset: 0, found });
    assert_eq!(
        left.to_string(),
        format!(
            "{} is retired: the page at offset 0x0 is on node {home}, not {node}",
            left.path.display()
        )
    );
    let status = made.pool.status().unwrap();
    assert_eq!(status.segments[0].path, left.path);
    assert_eq!(status.totals[0].retired, 1);
    assert!(made.pool.take(&ALL).unwrap().is_empty(), "retired for good");
    assert_eq!(made.scrub().segments, 0);
    assert_eq!(made.pool.drain(None, None).unwrap().segments, 0);
    let destroyed = made.pool.destroy().unwrap();
    assert_eq!((destroyed.drained.segments, destroyed.left.len()), (1, 0));
}

#[test]
fn a_clean_segment_with_a_poisoned_page_is_not_leased_as_clean() {
    let Some(mut made) = Made::of(1) else {
        return;
    };
    made.pool.touch = |_, _| Err(io::Error::from_raw_os_error(libc::EHWPOISON));
    let error = made.take_one_clean().unwrap_err();
    let PoolError::NotCleaned(left) = error else {
        panic!("{error}");
    };
    assert_eq!(left.left, Left::Poisoned { offset: 0 });
    let status = made.pool.status().unwrap();
    assert_eq!(status.segments[0].name.state, State::Retired);
    assert_eq!(status.segments[0].path, left.path);
}

#[test]
fn of_segments_that_could_not_be_populated_the_poisoned_ones_are_retired() {
    let Some(mut made) = Made::of(3) else {
        return;
    };
    let two = TakeRequest {
        max_bytes: 2 * SEGMENT,
        ..TakeRequest::default()
    };
    let leases = made.pool.take(&two).unwrap();
    let names: Vec<SegmentName> = leases.iter().map(Lease::name).collect();
    made.pool.touch = |_, _| Err(io::Error::from_raw_os_error(libc::EHWPOISON));
    assert_eq!(
        made.pool.retire_unfit(&names).unwrap(),
        [],
        "they are in use"
    );
    drop(leases);
    // Sound ones stay as they are.
    made.pool.touch = crate::sys::populate_write;
    assert_eq!(made.pool.retire_unfit(&names).unwrap(), []);
    made.pool.touch = |_, _| Err(io::Error::from_raw_os_error(libc::EHWPOISON));
    assert_eq!(made.pool.retire_unfit(&names).unwrap().len(), 2);
    let total = made.pool.status().unwrap().totals[0];
    assert_eq!(
        (total.clean, total.retired),
        (1, 2),
        "nobody asked for the third"
    );
}

#[test]
fn of_segments_whose_pages_were_misplaced_those_are_retired() {
    let Some(mut made) = Made::of(1) else {
        return;
    };
    made.pool.has_node = |_| true;
    let (dir, found) = (made.pool.path(), made.host.nodes[0].id);
    std::fs::rename(dir.join(format!("node{found}")), dir.join("node4095")).unwrap();
    let name = made.pool.status().unwrap().segments[0].name;
    let retired = made.pool.retire_unfit(&[name]).unwrap();
    assert_eq!(retired[0].left, Left::Elsewhere { offset: 0, found });
    assert_eq!(made.pool.status().unwrap().totals[0].retired, 1);
}
