//! Arbitrary limits, mounts and paths, and what a plan and a refusal have to do with them.

use std::path::{Path, PathBuf};

use prezero_host::{HugetlbLimit, HugetlbfsMount, LimitKind as HostKind, MemoryLimit};
use prezero_memory::{
    Backing, Host, LimitHit, LimitKind, PageSize, Plan, PlanError, Prealloc, Request,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseError;

type Checked = Result<(), TestCaseError>;
type Limits = (
    Vec<HugetlbLimit>,
    Vec<MemoryLimit>,
    Vec<HugetlbfsMount>,
    Option<u64>,
);

const PAGES: [PageSize; 2] = [PageSize::HUGE_2M, PageSize::HUGE_1G];
const MOUNTS: [&str; 3] = ["/dev/hugepages", "/mnt/huge", "/mnt/huge/inner"];

/// Some bytes, mostly above what a request wants.
fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![1 => 0..1_u64 << 32, 3 => 0..1_u64 << 38, 2 => 1_u64 << 38..1 << 50]
}

fn hugetlb() -> impl Strategy<Value = HugetlbLimit> {
    let kinds = select(vec![HostKind::Usage, HostKind::Reservation]);
    (
        select(PAGES.to_vec()),
        kinds,
        bytes(),
        0..1_u64 << 31,
        0..4_u32,
    )
        .prop_map(|(page_size, kind, limit, usage, depth)| HugetlbLimit {
            page_size,
            kind,
            file: format!("/sys/fs/cgroup/{depth}/hugetlb.max").into(),
            limit,
            usage,
        })
}

fn memory() -> impl Strategy<Value = MemoryLimit> {
    let facts = (
        bytes(),
        0..1_u64 << 31,
        0..1_u64 << 31,
        any::<bool>(),
        0..4_u32,
    );
    facts.prop_map(
        |(limit, usage, page_cache, counts_hugetlb, depth)| MemoryLimit {
            file: format!("/sys/fs/cgroup/{depth}/memory.max").into(),
            limit,
            usage,
            page_cache: page_cache.min(usage),
            counts_hugetlb,
        },
    )
}

fn mount(path: &'static str) -> impl Strategy<Value = HugetlbfsMount> {
    let page = option::weighted(0.9, select(PAGES.to_vec()));
    (
        page,
        option::weighted(0.3, bytes()),
        prop::bool::weighted(0.1),
    )
        .prop_map(move |(page_size, size_limit, read_only)| HugetlbfsMount {
            path: path.into(),
            page_size,
            size_limit,
            read_only,
            covered: Vec::new(),
        })
}

/// Limits of cgroups, the mounts, and the largest file; most hosts have none of the limits.
pub(crate) fn drawn() -> impl Strategy<Value = Limits> {
    let mounts = MOUNTS.map(|path| option::weighted(0.7, mount(path)));
    (
        prop_oneof![1 => vec(hugetlb(), 0), 1 => vec(hugetlb(), 1..4)],
        prop_oneof![2 => vec(memory(), 0), 1 => vec(memory(), 1..3)],
        mounts.prop_map(|mounts| mounts.into_iter().flatten().collect()),
        option::weighted(0.1, bytes()),
    )
}

/// On or below one of the mounts, if it is there, or elsewhere.
pub(crate) fn path() -> impl Strategy<Value = PathBuf> {
    let paths = [
        "/dev/hugepages",
        "/dev/hugepages/vm",
        "/mnt/huge",
        "/mnt/huge",
        "/mnt/huge/inner/vm",
        "/mnt/hugepages",
        "/dev/hugepages/../shm",
    ];
    select(paths.to_vec()).prop_map(PathBuf::from)
}

fn mount_of<'a>(host: &'a Host, path: &Path) -> Option<&'a HugetlbfsMount> {
    let mounts = host
        .mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.path));
    let up = path.components().any(|part| part.as_os_str() == "..");
    mounts
        .max_by_key(|mount| mount.path.as_os_str().len())
        .filter(|_| !up)
}

/// Nothing that is planned is more than any limit leaves.
pub(crate) fn limits_are_kept(host: &Host, plan: &Plan) -> Checked {
    let sum = |of: &dyn Fn(&prezero_memory::Extent) -> bool| -> u64 {
        let extents = plan.extents().filter(|extent| of(extent));
        extents.map(|extent| extent.len().bytes()).sum()
    };
    let huge = |backing: Backing| backing.is_hugetlb();
    for limit in &host.hugetlb_limits {
        let taken = sum(&|extent| huge(extent.backing()) && extent.page_size() == limit.page_size);
        prop_assert!(
            taken == 0 || limit.usage + taken <= limit.limit,
            "{:?}",
            limit
        );
    }
    let ordinary = match plan.prealloc() {
        Prealloc::Eager => sum(&|extent| !huge(extent.backing())),
        Prealloc::Off => 0,
    };
    for limit in &host.memory_limits {
        prop_assert!(
            ordinary == 0 || ordinary <= limit.remaining(),
            "{:?}",
            limit
        );
        if limit.counts_hugetlb {
            for page in PAGES {
                let taken = sum(&|extent| huge(extent.backing()) && extent.page_size() == page);
                prop_assert!(taken == 0 || taken <= limit.remaining(), "{:?}", limit);
            }
        }
    }
    for mount in &host.mounts {
        let slots = plan.slots().iter();
        let on = slots.filter(|slot| {
            slot.dir()
                .and_then(|dir| mount_of(host, dir))
                .map(|at| &at.path)
                == Some(&mount.path)
        });
        let taken: u64 = on.map(|slot| slot.len()).sum();
        prop_assert!(taken == 0 || !mount.read_only);
        prop_assert!(
            mount.size_limit.is_none_or(|limit| taken <= limit),
            "{:?}",
            mount
        );
    }
    if let Some(largest) = host.limits.file_size {
        let mut files = plan.extents().filter(|extent| huge(extent.backing()));
        prop_assert!(files.all(|extent| extent.len().bytes() <= largest));
    }
    Ok(())
}

/// The refusals that limits, mounts and names are a reason for.
pub(crate) fn refusal_is_true(host: &Host, request: &Request, error: &PlanError) -> Checked {
    let zones = &request.zones;
    let asked = |path: &Path| zones.iter().any(|zone| zone.path.as_deref() == Some(path));
    match error {
        PlanError::Limit(hit) => hit_is_true(host, hit)?,
        PlanError::NotHugetlbfs { path, mounts } => {
            prop_assert!(asked(path) && mount_of(host, path).is_none());
            let there: Vec<_> = host.mounts.iter().map(|mount| mount.path.clone()).collect();
            prop_assert_eq!(mounts, &there);
        }
        PlanError::ReadOnlyMount(path) => {
            let mount = host.mounts.iter().find(|mount| mount.path == *path);
            prop_assert!(mount.is_some_and(|mount| mount.read_only));
        }
        PlanError::MountPageSize { path, page, asked } => {
            let mount = host.mounts.iter().find(|mount| mount.path == *path);
            let has = mount.and_then(|mount| mount.page_size.or(host.default_hugepage_size));
            prop_assert!(has == Some(*page) && asked != page);
            prop_assert!(zones.iter().any(|zone| zone.hugepage_size == Some(*asked)));
        }
        PlanError::DuplicateId(id) => {
            let named = zones.iter().filter(|zone| zone.id.as_ref() == Some(id));
            prop_assert!(named.count() > 1);
        }
        other => {
            return Err(TestCaseError::fail(format!(
                "A new kind of refusal: {other:?}"
            )));
        }
    }
    Ok(())
}

/// The limit is one of the host's, with its numbers, and too low.
fn hit_is_true(host: &Host, hit: &LimitHit) -> Checked {
    let wanted = hit.usage.saturating_add(hit.needed);
    prop_assert!(
        wanted > hit.limit && hit.short() == wanted - hit.limit,
        "{}",
        hit
    );
    let kind = match hit.what {
        LimitKind::HugetlbUsage => Some(HostKind::Usage),
        LimitKind::HugetlbReservation => Some(HostKind::Reservation),
        _ => None,
    };
    let known = match hit.what {
        LimitKind::HugetlbUsage | LimitKind::HugetlbReservation => {
            host.hugetlb_limits.iter().any(|limit| {
                Some(limit.kind) == kind
                    && (&limit.file, limit.limit, limit.usage) == (&hit.file, hit.limit, hit.usage)
            })
        }
        LimitKind::Memory => host.memory_limits.iter().any(|limit| {
            let usage = limit.usage - limit.page_cache;
            (&limit.file, limit.limit, usage) == (&hit.file, hit.limit, hit.usage)
        }),
        LimitKind::Mount => host
            .mounts
            .iter()
            .any(|mount| (&mount.path, mount.size_limit) == (&hit.file, Some(hit.limit))),
        LimitKind::FileSize => host.limits.file_size == Some(hit.limit),
        _ => false,
    };
    prop_assert!(known, "{:?}", hit);
    Ok(())
}
