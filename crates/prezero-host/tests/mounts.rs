//! Which hugetlbfs mount is used, and on which one a path is, with mounts as they can be.

use std::fs;
use std::path::{Path, PathBuf};

use prezero_host::{Host, PageSize};

fn host(mountinfo: &str) -> Host {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("proc/self");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("mountinfo"), mountinfo).unwrap();
    fs::write(dir.path().join("proc/meminfo"), "Hugepagesize: 2048 kB\n").unwrap();
    Host::read(dir.path())
}

fn mount_of<'a>(host: &'a Host, path: &str) -> Option<&'a Path> {
    host.mount_of(Path::new(path))
        .map(|mount| mount.path.as_path())
}

#[test]
fn the_first_writable_mount_of_a_size_is_used() {
    let host = host(
        "30 1 0:1 / /z ro - hugetlbfs none rw,pagesize=1024M\n\
         31 1 0:2 / /y rw - hugetlbfs none rw,pagesize=1G\n\
         32 1 0:3 / /x rw - hugetlbfs none rw,pagesize=2048k\n\
         33 1 0:4 / /a rw - hugetlbfs none rw\n\
         34 1 0:5 / /b rw - hugetlbfs none rw,pagesize=1024M\n",
    );
    let used = |size| host.mount_for(size).map(|mount| mount.path.clone());
    assert_eq!(used(PageSize::HUGE_1G), Some(PathBuf::from("/y")));
    assert_eq!(used(PageSize::HUGE_2M), Some(PathBuf::from("/x")));
    assert_eq!(used(PageSize::BASE), None);
    assert_eq!(host.problems, []);
}

#[test]
fn a_path_is_on_the_longest_mount_in_front_of_it() {
    let host = host(
        "29 1 0:0 / / rw - ext4 none rw\n\
         30 29 0:1 / /huge rw - hugetlbfs none rw\n\
         31 30 0:2 / /huge/tmp rw - tmpfs none rw\n\
         32 31 0:3 / /huge/tmp/big rw - hugetlbfs none rw,pagesize=1G\n\
         33 29 0:4 / /a\\040b rw - hugetlbfs none rw\n",
    );
    assert_eq!(host.mounts[0].covered, [PathBuf::from("/huge/tmp")]);
    let huge = Some(Path::new("/huge"));
    assert_eq!(mount_of(&host, "/huge"), huge);
    assert_eq!(mount_of(&host, "/huge/vm/ram"), huge);
    assert_eq!(mount_of(&host, "/huge//./tmp2"), huge);
    assert_eq!(mount_of(&host, "/huge/tmp"), None, "another filesystem");
    assert_eq!(mount_of(&host, "/huge/tmp/file"), None);
    assert_eq!(
        mount_of(&host, "/huge/tmp/big/file"),
        Some(Path::new("/huge/tmp/big"))
    );
    assert_eq!(mount_of(&host, "/a b/file"), Some(Path::new("/a b")));
    for elsewhere in ["/", "/huge2/file", "huge/file", "/huge/../file", ""] {
        assert_eq!(mount_of(&host, elsewhere), None, "{elsewhere}");
    }
}

#[test]
fn a_hidden_mount_holds_no_path() {
    let host = host(
        "29 1 0:0 / / rw - ext4 none rw\n\
         30 29 0:1 / /mnt/huge rw - hugetlbfs none rw\n\
         31 29 0:2 / /mnt rw - tmpfs none rw\n",
    );
    assert_eq!(host.mounts, []);
    assert_eq!(mount_of(&host, "/mnt/huge/file"), None);
}

/// Overlay mounts of containers have options as long as a page and more.
#[test]
fn odd_lines_are_read_or_counted() {
    let long = "x".repeat(64 << 10);
    let host = host(&format!(
        "30 1 0:1 / /long rw shared:1 - overlay overlay rw,lowerdir={long}\n\
         31 1 0:2 / /a rw shared:1 master:2 unbindable - hugetlbfs  rw,{long},pagesize=2M\n\
         32 1 0:3 / /no-dash rw hugetlbfs none rw\n\
         33 1 0:4 / /\\141\\134b rw - hugetlbfs none rw,uid=107,pagesize=2048k,size=2M\n\
         34 1 0:5 / /cut rw - hugetlbfs\n"
    ));
    let paths: Vec<_> = host.mounts.iter().map(|mount| &mount.path).collect();
    assert_eq!(paths, [Path::new("/a"), Path::new("/a\\b")]);
    let size = Some(PageSize::HUGE_2M);
    assert!(host.mounts.iter().all(|mount| mount.page_size == size));
    assert_eq!(host.mounts[1].size_limit, Some(2 << 20));
    let [problem] = &host.problems[..] else {
        panic!("{:?}", host.problems)
    };
    assert_eq!(problem.what, "Has 2 lines that were not understood");
}
