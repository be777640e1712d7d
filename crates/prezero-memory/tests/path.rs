//! `path=`: what a directory has to be, seen by the plan, and what the kernel says where that has changed.

mod requests;

use std::fs;
use std::path::Path;

use prezero_host::HugetlbfsMount;
use prezero_memory::{
    Backing, Class, GuestRam, Host, LimitKind, PageSize, PlanError, Request, ReserveError, plan,
};
use requests::{eager, host_claiming};

fn mount(path: &Path, page: PageSize) -> HugetlbfsMount {
    HugetlbfsMount {
        path: path.to_owned(),
        page_size: Some(page),
        size_limit: None,
        read_only: false,
        covered: Vec::new(),
    }
}

fn on(path: &Path) -> Request {
    eager(&[&format!("size=64M,hugepages=on,path={}", path.display())])
}

#[test]
fn an_ordinary_directory_is_refused_with_the_mounts_there_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut host = host_claiming(100);
    host.mounts.clear();
    let error = plan(&host, &on(dir.path())).expect_err("it is no hugetlbfs");
    assert_eq!(error.class(), Class::Usage);
    assert!(error.to_string().contains("this host has none"), "{error}");
    let there = mount(Path::new("/mnt/huge"), PageSize::HUGE_2M);
    host.mounts = vec![there];
    for zone in ["auto", "on"] {
        let spec = format!("size=64M,hugepages={zone},path={}", dir.path().display());
        let error = plan(&host, &eager(&[&spec])).expect_err("auto is no excuse");
        let PlanError::NotHugetlbfs { path, mounts } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(
            (&**path, &mounts[..]),
            (dir.path(), &["/mnt/huge".into()][..])
        );
        let fix = error.fix().expect("another path");
        assert!(fix.starts_with("path=/mnt/huge,"), "{fix}");
    }
}

#[test]
fn the_mount_decides_the_page_size_and_its_limit_binds() {
    let dir = Path::new("/mnt/huge");
    let mut host = host_claiming(100);
    host.mounts = vec![mount(dir, PageSize::HUGE_2M)];
    let below = plan(&host, &on(&dir.join("vm"))).expect("below a mount");
    let backings: Vec<Backing> = below.extents().map(|extent| extent.backing()).collect();
    assert_eq!(backings, [Backing::Hugetlbfs]);
    assert_eq!(below.slots()[0].dir(), Some(&*dir.join("vm")));

    let other = eager(&[&format!("size=1G,hugepage_size=1G,path={}", dir.display())]);
    let error = plan(&host, &other).expect_err("the mount has others");
    assert!(
        matches!(error, PlanError::MountPageSize { .. }),
        "{error:?}"
    );

    host.mounts[0].size_limit = Some(62 << 20);
    let error = plan(&host, &on(dir)).expect_err("a page too many");
    let PlanError::Limit(hit) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (hit.what, &*hit.file, hit.short()),
        (LimitKind::Mount, dir, 2 << 20)
    );
    assert_eq!(
        error.fix().as_deref(),
        Some(
            "leave path out: a memfd needs no mount; or umount /mnt/huge and mount it with size=67108864"
        )
    );

    host.mounts[0].read_only = true;
    let error = plan(&host, &on(dir)).expect_err("nothing can be created");
    assert_eq!(error, PlanError::ReadOnlyMount(dir.to_owned()));
    assert_eq!(error.class(), Class::Host);
}

#[test]
fn zones_on_one_mount_share_its_limit() {
    let dir = Path::new("/mnt/huge");
    let mut host = host_claiming(100);
    host.mounts = vec![mount(dir, PageSize::HUGE_2M)];
    host.mounts[0].size_limit = Some(64 << 20);
    let zone = |mib: u64| format!("size={mib}M,hugepages=on,path=/mnt/huge");
    plan(&host, &eager(&[&zone(32), &zone(32)])).expect("exactly the limit");
    let error = plan(&host, &eager(&[&zone(32), &zone(34)])).expect_err("a page more");
    assert!(
        matches!(&error, PlanError::Limit(hit) if hit.short() == 2 << 20),
        "{error:?}"
    );
}

#[test]
fn a_directory_that_is_no_mount_any_more_is_left_empty() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut host = host_claiming(100);
    host.mounts = vec![mount(dir.path(), PageSize::HUGE_2M)];
    let blind = plan(&host, &on(dir.path())).expect("the host claims so");
    let error = GuestRam::reserve(&blind).expect_err("it is no hugetlbfs");
    assert_eq!(error.class(), Class::Host, "{error:?}");
    assert!(matches!(error, ReserveError::Create { .. }), "{error:?}");
    assert!(
        error
            .fix()
            .is_some_and(|fix| fix.contains("leave path out"))
    );
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0);

    host.mounts[0].path = dir.path().join("gone");
    let blind = plan(&host, &on(&dir.path().join("gone"))).expect("the host claims so");
    let error = GuestRam::reserve(&blind).expect_err("it is gone");
    assert_eq!(error.class(), Class::Usage, "{error:?}");
    assert!(error.fix().is_some_and(|fix| fix.starts_with("mkdir ")));
}

#[test]
fn zones_with_one_name_are_refused() {
    let host = Host::probe();
    let zones = ["size=4M,hugepages=off,id=a", "size=8M,hugepages=off,id=b"];
    plan(&host, &eager(&zones)).expect("two names");
    let error = plan(&host, &eager(&[zones[0], zones[1], zones[0]])).expect_err("a again");
    assert_eq!(error, PlanError::DuplicateId("a".to_owned()));
    assert_eq!(error.class(), Class::Usage);
}
