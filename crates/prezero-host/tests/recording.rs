//! A recording gives the facts of the machine it was made of, and nothing about who uses it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use prezero_host::Host;

fn fixtures() -> Vec<PathBuf> {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts");
    let entries = fs::read_dir(hosts).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// A recording and the files in it.
fn record(root: &Path) -> (tempfile::TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let files = Host::record(root, dir.path()).unwrap();
    (dir, files)
}

/// The host without the names that a recording changes: of a path remains what is left of its
/// components, and of a file below a cgroup its name.
fn without_names(mut host: Host, root: &Path) -> Host {
    let anonymous = |path: &Path| PathBuf::from("x/".repeat(path.components().count()));
    let file = |path: &Path| anonymous(path).join(path.file_name().unwrap());
    if let Some(quota) = &mut host.cpu_quota {
        quota.cgroup = anonymous(&quota.cgroup);
    }
    for limit in &mut host.hugetlb_limits {
        limit.file = file(&limit.file);
    }
    for limit in &mut host.memory_limits {
        limit.file = file(&limit.file);
    }
    for mount in &mut host.mounts {
        mount.path = anonymous(&mount.path);
        mount
            .covered
            .iter_mut()
            .for_each(|path| *path = anonymous(path));
    }
    for problem in &mut host.problems {
        let below = problem.path.strip_prefix(root).unwrap();
        problem.path = match below.starts_with("sys/fs/cgroup") {
            true => file(below),
            false => below.to_owned(),
        };
    }
    host
}

fn assert_same_facts(root: &Path, copy: &Path) {
    let (original, recorded) = (Host::read(root), Host::read(copy));
    assert_eq!(
        without_names(recorded, copy),
        without_names(original, root),
        "{}",
        root.display()
    );
}

#[test]
fn a_recording_of_a_fixture_has_its_facts() {
    assert!(fixtures().len() >= 10);
    for root in fixtures() {
        let (copy, files) = record(&root);
        assert_same_facts(&root, copy.path());
        assert!(files.is_sorted() && files.contains(&"proc/meminfo".into()));
        for file in files {
            let mode = fs::metadata(copy.path().join(&file))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o7777, 0o644, "{}", file.display());
        }
    }
}

#[test]
fn a_recording_of_a_recording_is_the_same_to_the_byte() {
    for root in fixtures().into_iter().chain([PathBuf::from("/")]) {
        let (first, files) = record(&root);
        let (second, files_again) = record(first.path());
        assert_eq!(files, files_again);
        for file in files {
            let text = |copy: &tempfile::TempDir| fs::read(copy.path().join(&file)).unwrap();
            assert_eq!(text(&first), text(&second), "{}", file.display());
        }
        assert_same_facts(first.path(), second.path());
    }
}

/// Amounts of free memory change between two readings.
#[test]
fn a_recording_of_this_machine_has_its_facts() {
    let settled = |mut host: Host| {
        host.mem_available = None;
        host.pools.iter_mut().for_each(|pool| {
            (pool.total, pool.free, pool.reserved, pool.surplus) = (0, 0, 0, 0);
        });
        for node in &mut host.nodes {
            node.mem_free = None;
            node.pools.iter_mut().for_each(|pool| {
                (pool.total, pool.free, pool.surplus) = (0, 0, 0);
            });
        }
        host.hugetlb_limits
            .iter_mut()
            .for_each(|limit| limit.usage = 0);
        host.memory_limits
            .iter_mut()
            .for_each(|limit| limit.usage = 0);
        host
    };
    let (copy, _) = record(Path::new("/"));
    let recorded = settled(without_names(Host::read(copy.path()), copy.path()));
    assert_eq!(
        recorded,
        settled(without_names(Host::probe(), Path::new("/")))
    );
}

const SECRET: &str = "SECRET";

/// A machine with something private in every place where a text is free.
const PRIVATE: &[(&str, &str)] = &[
    (
        "proc/meminfo",
        "MemTotal: 8 kB\nSECRET: 1 kB\nMemAvailable: 4 kB\nHugepagesize: 2048 kB\nHugePages_Total: 4\n",
    ),
    (
        "proc/version",
        "Linux version 6.1 (SECRET@SECRET) (gcc #SECRET) #1 SMP PREEMPT_DYNAMIC SECRET Mon\n",
    ),
    (
        "proc/cmdline",
        "root=SECRET preempt=SECRET password=SECRET preempt=full SECRET\n",
    ),
    (
        "proc/cpuinfo",
        "vendor_id : A\nserial : SECRET\nflags : fpu SECRET hypervisor\nHardware : SECRET\n\nflags : SECRET\n",
    ),
    (
        "proc/self/status",
        "Name:\tSECRET\nCpus_allowed_list:\t0\nGroups:\tSECRET\n",
    ),
    (
        "proc/self/limits",
        "SECRET\nMax file size    1   SECRET   bytes\nMax SECRET 1 1 bytes\n",
    ),
    (
        "proc/self/cgroup",
        "7:hugetlb,SECRET:/SECRET1/v1\n6:name=SECRET:/SECRET\n5:SECRET:/x\n0::/SECRET1/SECRET2\nSECRET\n",
    ),
    (
        "proc/self/mountinfo",
        "20 1 0:1 / / rw - ext4 /dev/SECRET rw,SECRET\n\
         21 20 0:2 / /home/SECRET rw - fuse.SECRET SECRET rw,dir=SECRET\n\
         22 20 0:3 / /SECRET3/hugepages rw,SECRET shared:SECRET - hugetlbfs SECRET rw,SECRET,pagesize=2M,uid=SECRET\n\
         23 22 0:4 /SECRET /SECRET3/hugepages/SECRET4 rw - fuse.SECRET SECRET rw,SECRET\n\
         24 20 0:5 / /sys/fs/cgroup rw - cgroup2 SECRET rw,SECRET\n\
         25 20 0:6 /SECRET1 /SECRET5 rw - cgroup SECRET rw,hugetlb,SECRET\n\
         26 20 0:7 / /SECRET6 rw - cgroup SECRET rw,name=SECRET\n\
         27 SECRET not understood\n",
    ),
    ("sys/fs/cgroup/SECRET1/SECRET2/cpu.max", "1000 2000\n"),
    ("sys/fs/cgroup/SECRET1/memory.max", "4096\n"),
    ("sys/fs/cgroup/SECRET1/memory.current", "4096\n"),
    ("sys/fs/cgroup/SECRET1/SECRET.max", "4096\n"),
    ("SECRET5/v1/hugetlb.2MB.limit_in_bytes", "4096\n"),
    ("SECRET5/v1/hugetlb.2MB.usage_in_bytes", "0\n"),
    (
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "4\n",
    ),
    (
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        "4\n",
    ),
    (
        "sys/kernel/mm/hugepages/hugepages-2048kB/SECRET",
        "SECRET\n",
    ),
    ("sys/devices/system/node/online", "0\n"),
    (
        "sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal: 8 kB\nNode 0 SECRET: 8 kB\n",
    ),
    ("sys/devices/system/node/node0/SECRET", "SECRET\n"),
    ("etc/hostname", "SECRET\n"),
];

#[test]
fn nothing_private_is_recorded() {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in PRIVATE {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let host = Host::read(root.path());
    assert_eq!(host.kernel.preempt, "full");
    assert_eq!(
        (host.hugetlb_limits.len(), host.memory_limits.len()),
        (1, 1)
    );
    assert!(host.cpu_quota.is_some() && host.mounts[0].covered.len() == 1);
    assert_eq!(host.problems.len(), 1, "{:?}", host.problems);

    let (copy, files) = record(root.path());
    assert_same_facts(root.path(), copy.path());
    assert!(
        files.contains(&"m3/c2/hugetlb.2MB.limit_in_bytes".into()),
        "{files:?}"
    );
    assert!(
        files.contains(&"sys/fs/cgroup/c1/c3/cpu.max".into()),
        "{files:?}"
    );
    let mut directories = vec![copy.path().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(copy.path())
                .unwrap()
                .display()
                .to_string();
            assert!(!name.contains(SECRET), "{name}");
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            assert!(!text.contains(SECRET), "{name}: {text}");
        }
    }
}

#[test]
fn what_is_absent_stays_absent() {
    let empty = tempfile::tempdir().unwrap();
    assert!(record(empty.path()).1.is_empty());
}

#[test]
fn a_directory_that_holds_something_is_left_alone() {
    let (copy, files) = record(&fixtures()[0]);
    let before = fs::read(copy.path().join(&files[0])).unwrap();
    let error = Host::record(&fixtures()[1], copy.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs::read(copy.path().join(&files[0])).unwrap(), before);
    let file = copy.path().join(&files[0]);
    assert!(Host::record(&fixtures()[1], &file).is_err(), "into a file");
}

#[test]
fn a_root_that_is_no_directory_is_refused_and_nothing_made() {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("into");
    let error = Host::record(&dir.path().join("absent"), &into).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotADirectory);
    assert!(!into.exists());
}
