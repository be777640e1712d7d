//! Arbitrary hosts as a kernel may show them, and arbitrary requests.

use prezero_host::{Cpu, CpuQuota, HugepagePool, Kernel, Node, NodePool, ProcessLimits, Thp};
use prezero_memory::{
    Host, Hugepages, IdSet, MemorySpec, NodeChoice, PageSize, Policy, Prealloc, Request,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::limits;

/// Node ids stay below this; those of a host are some of them.
const NODE_IDS: u32 = 12;
const PAGES: [PageSize; 2] = [PageSize::HUGE_2M, PageSize::HUGE_1G];

/// What is drawn for one node, before the nodes are known to each other.
#[derive(Clone, Debug)]
struct NodeDraw {
    mem_total: Option<u64>,
    free_share: u64,
    free: [u64; 2],
    used: u64,
    shows_pools: bool,
}

fn node_draw() -> impl Strategy<Value = NodeDraw> {
    let pages = || prop_oneof![3 => 0..40_u64, 3 => 0..5000_u64, 1 => 0..3_000_000_u64];
    (
        prop_oneof![
            1 => Just(None),
            1 => Just(Some(0)),
            6 => (1..1_u64 << 42).prop_map(Some),
        ],
        0..=100_u64,
        [pages(), pages()],
        0..500_u64,
        prop::bool::weighted(0.95),
    )
        .prop_map(
            |(mem_total, free_share, free, used, shows_pools)| NodeDraw {
                mem_total,
                free_share,
                free,
                used,
                shows_pools,
            },
        )
}

fn node(id: u32, draw: &NodeDraw, sizes: &[PageSize]) -> Node {
    let has_memory = draw.mem_total != Some(0);
    let pool = |(page_size, free): (PageSize, u64)| NodePool {
        page_size,
        total: if has_memory { free + draw.used } else { 0 },
        free: if has_memory { free } else { 0 },
        surplus: 0,
    };
    let shown = PAGES.into_iter().zip(draw.free);
    let shown = shown.filter(|(page, _)| draw.shows_pools && sizes.contains(page));
    Node {
        id,
        mem_total: draw.mem_total,
        mem_free: draw.mem_total.map(|total| total / 100 * draw.free_share),
        pools: shown.map(pool).collect(),
        ..Node::default()
    }
}

/// The nodes: ids with gaps, the first with memory, CPUs dealt out at random so that some have none.
fn nodes(sizes: Vec<PageSize>) -> impl Strategy<Value = Vec<Node>> {
    let ids = subsequence((0..NODE_IDS).collect::<Vec<_>>(), 1..=8);
    ids.prop_flat_map(move |ids| {
        let count = ids.len();
        let sizes = sizes.clone();
        (
            Just(ids),
            vec(node_draw(), count),
            vec(0..count, 1..24),
            vec(11..255_u32, count * count),
        )
            .prop_map(move |(ids, mut draws, owners, distances)| {
                draws[0].mem_total = draws[0].mem_total.filter(|total| *total > 0);
                let made = ids.iter().zip(&draws).enumerate();
                made.map(|(n, (&id, draw))| {
                    let mut node = node(id, draw, &sizes);
                    let of_node = owners.iter().zip(0..).filter(|(owner, _)| **owner == n);
                    node.cpus = of_node.map(|(_, cpu)| cpu).collect();
                    let row = &distances[n * count..][..count];
                    node.distances = ids.iter().copied().zip(row.iter().copied()).collect();
                    node.distances[n].1 = 10;
                    node
                })
                .collect()
            })
    })
}

/// The host's pools: the sum of the nodes', with reservations and overcommit on top.
fn pools(nodes: &[Node], sizes: &[PageSize], draws: &[(u64, u64, u64)]) -> Vec<HugepagePool> {
    let pool = |(&page_size, &(reserved, surplus, overcommit)): (&PageSize, &(u64, u64, u64))| {
        let of_nodes = || nodes.iter().filter_map(|node| node.pool(page_size));
        HugepagePool {
            page_size,
            total: of_nodes().map(|pool| pool.total).sum(),
            free: of_nodes().map(|pool| pool.free).sum(),
            reserved,
            surplus,
            overcommit,
        }
    };
    sizes.iter().zip(draws).map(pool).collect()
}

/// Some members of `of`, at least one unless there is none.
fn some_of(of: Vec<u32>) -> impl Strategy<Value = IdSet> {
    let least = of.len().min(1);
    let some = subsequence(of.clone(), least..=of.len()).prop_map(IdSet::from_iter);
    prop_oneof![Just(IdSet::from_iter(of)), some]
}

fn kernel() -> impl Strategy<Value = Kernel> {
    let release = prop_oneof![
        12 => Just("6.12.41"),
        1 => select(vec!["5.13.19", "5.14.0", "unknown", ""]),
    ];
    release.prop_map(|release| Kernel {
        release: release.to_owned(),
        ..Kernel::default()
    })
}

fn cpu() -> impl Strategy<Value = Cpu> {
    let vendors = select(vec!["GenuineIntel", "AuthenticAMD", "HygonGenuine", ""]);
    (
        vendors,
        option::weighted(0.9, prop_oneof![1 => 36..40_u8, 6 => 40..=52_u8]),
    )
        .prop_map(|(vendor, phys_addr_bits)| Cpu {
            vendor: vendor.to_owned(),
            phys_addr_bits,
            ..Cpu::default()
        })
}

/// A host: the memory and CPUs that a process may use are some of those that there are, and never none.
pub(crate) fn host() -> impl Strategy<Value = Host> {
    subsequence(PAGES.to_vec(), 0..=2)
        .prop_flat_map(|sizes| (Just(sizes.clone()), nodes(sizes)))
        .prop_flat_map(|(sizes, nodes)| {
            let with_memory = nodes.iter().filter(|node| node.mem_total != Some(0));
            let with_memory = some_of(with_memory.map(|node| node.id).collect());
            let cpus = some_of(nodes.iter().flat_map(|node| &node.cpus).collect());
            let isolated = prop_oneof![
                3 => Just(IdSet::default()),
                1 => some_of(nodes.iter().flat_map(|node| &node.cpus).collect()),
            ];
            let reserved = prop_oneof![2 => Just(0), 1 => 0..300_u64];
            let extra = (
                reserved,
                0..20_u64,
                prop_oneof![2 => Just(0), 1 => 0..200_u64],
            );
            (
                (Just(sizes), Just(nodes), vec(extra, 2)),
                (with_memory, cpus, isolated, prop::bool::weighted(0.9)),
                (kernel(), cpu(), option::weighted(0.3, 1..1_000_000_u64)),
                select(vec![
                    Thp::Always,
                    Thp::Madvise,
                    Thp::Never,
                    Thp::Unavailable,
                ]),
                option::weighted(0.8, prop_oneof![0..1_u64 << 35, 0..1_u64 << 44]),
                (any::<prop::sample::Index>(), limits::drawn()),
            )
        })
        .prop_map(
            |(
                (sizes, mut nodes, extra),
                (allowed_nodes, allowed_cpus, isolated_cpus, topology_known),
                (kernel, cpu, quota),
                thp,
                mem_available,
                (default, (hugetlb_limits, memory_limits, mut mounts, file_size)),
            )| {
                // Only pages that the kernel knows can be mounted.
                mounts.retain(|mount| {
                    let known = |page| sizes.contains(&page);
                    mount.page_size.map_or(!sizes.is_empty(), known)
                });
                if !topology_known {
                    // What `Host` shows then: one node with the CPUs that the process may use.
                    nodes.truncate(1);
                    nodes[0].id = 0;
                    nodes[0].distances = vec![(0, 10)];
                    nodes[0].cpus = allowed_cpus.clone();
                }
                let pools = pools(&nodes, &sizes, &extra);
                Host {
                    kernel,
                    cpu,
                    topology_known,
                    allowed_nodes: match topology_known {
                        true => allowed_nodes,
                        false => nodes.iter().map(|node| node.id).collect(),
                    },
                    default_hugepage_size: (!sizes.is_empty()).then(|| *default.get(&sizes)),
                    nodes,
                    pools,
                    thp,
                    mem_available,
                    allowed_cpus,
                    isolated_cpus,
                    hugetlb_limits,
                    memory_limits,
                    mounts,
                    limits: ProcessLimits {
                        file_size,
                        ..ProcessLimits::default()
                    },
                    cpu_quota: quota.map(|quota_us| CpuQuota {
                        quota_us,
                        period_us: 100_000,
                        cgroup: "/sys/fs/cgroup/vm".into(),
                    }),
                    ..Host::default()
                }
            },
        )
}

/// Nodes to be on: one, to which memory is bound, or several in any of the ways.
fn node_choice() -> impl Strategy<Value = NodeChoice> {
    let policies = select(vec![Policy::Bind, Policy::Preferred, Policy::Interleave]);
    let several = vec(0..NODE_IDS, 0..4).prop_map(IdSet::from_iter);
    prop_oneof![
        2 => (0..NODE_IDS).prop_map(NodeChoice::bind),
        3 => (policies, several).prop_map(|(policy, nodes)| NodeChoice { policy, nodes }),
    ]
}

/// A zone of memory: mostly whole hugepages, sometimes more than any machine has, or an odd count of bytes.
pub(crate) fn zone() -> impl Strategy<Value = MemorySpec> {
    let size = prop_oneof![
        8 => (1..=64_u64).prop_map(|n| n << 30),
        6 => (1..4000_u64).prop_map(|n| n << 21),
        1 => (1..10_000_u64).prop_map(|n| n << 30),
        1 => (1..100_000_u64).prop_map(|n| n << 12),

        1 => prop_oneof![0..1_u64 << 36, any::<u64>()],
    ];
    (
        size,
        select(vec![Hugepages::Auto, Hugepages::On, Hugepages::Off]),
        option::weighted(0.3, select(PAGES.to_vec())),
        option::weighted(0.4, node_choice()),
        option::weighted(0.2, prop_oneof!["[ab]", "[a-z0-9_-]{1,8}"]),
        option::weighted(0.3, limits::path()),
    )
        .prop_map(
            |(bytes, hugepages, hugepage_size, nodes, id, path)| MemorySpec {
                id,
                hugepages,
                // What the parser refuses is not drawn.
                hugepage_size: hugepage_size.filter(|_| hugepages != Hugepages::Off),
                path: path.filter(|_| hugepages != Hugepages::Off),
                nodes,
                ..MemorySpec::new(bytes)
            },
        )
}

/// A request of up to three zones; a node that is asked for is mostly one that `host` has.
pub(crate) fn request(host: &Host) -> impl Strategy<Value = Request> + use<> {
    let ids: Vec<u32> = host.nodes.iter().map(|node| node.id).collect();
    let allowed: Vec<u32> = host.allowed_cpus.iter().collect();
    let near = vec(subsequence(ids.clone(), 1..=ids.len().min(4)), 3);
    let list = prop_oneof![
        4 => some_of(allowed),
        1 => vec(0..40_u32, 0..4).prop_map(IdSet::from_iter),
    ];
    let threads = prop_oneof![1 => Just(0), 20 => 1..3_usize, 20 => 3..200_usize];
    (
        (
            prop_oneof![1 => vec(zone(), 0), 60 => vec(zone(), 1..=3)],
            near,
        ),
        select(vec![Prealloc::Eager, Prealloc::Off]),
        option::weighted(0.4, threads),
        option::weighted(0.3, list),
        prop::bool::weighted(0.8),
    )
        .prop_map(|((mut zones, near), prealloc, threads, cpus, real_nodes)| {
            for (zone, ids) in zones.iter_mut().zip(near).filter(|_| real_nodes) {
                if let Some(choice) = &mut zone.nodes {
                    // As many of the host's nodes as were drawn.
                    let count = choice.nodes.len();
                    choice.nodes = ids.into_iter().take(count).collect();
                }
            }
            Request {
                zones,
                prealloc,
                threads,
                cpus,
                ..Request::default()
            }
        })
}

/// The request with zones that want about as many 2 MiB pages as the host has, so that nodes run out.
fn fitting(host: &Host, mut request: Request) -> Request {
    let page = PageSize::HUGE_2M;
    let count = request.zones.len().max(1) as u64;
    let Some(pool) = host.pool(page) else {
        return request;
    };
    let most = pool.available() / count + 1;
    for zone in &mut request.zones {
        zone.path = None;
        zone.hugepages = Hugepages::On;
        zone.hugepage_size = Some(page);
        zone.bytes = (1 + (zone.bytes >> page.shift()) % most) << page.shift();
    }
    request
}

/// A host and a request for it.
pub(crate) fn host_and_request() -> impl Strategy<Value = (Host, Request)> {
    host().prop_flat_map(|host| {
        let request = request(&host);
        (Just(host), request, prop::bool::weighted(0.25)).prop_map(|(host, request, fits)| {
            let request = match fits {
                true => fitting(&host, request),
                false => request,
            };
            (host, request)
        })
    })
}
