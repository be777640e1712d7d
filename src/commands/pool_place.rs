//! Where a pool is if nobody says, and what its pages make of sizes: for every command that uses one.

use std::path::{Path, PathBuf, absolute};

use prezero_host::{Host, PageSize};
use prezero_memory::{ByteSize, Class, PageBytes};

use crate::failure::Failure;

/// The directory of the default pool, on the hugetlbfs mount of its page size.
const NAME: &str = "prezero";

/// Where the pool with pages of this size is, or would be, if no directory is named. None without a
/// hugetlbfs mount of that size that can be written to.
pub(crate) fn default_dir(host: &Host, page: PageSize) -> Option<PathBuf> {
    Some(host.mount_for(page)?.path.join(NAME))
}

/// The directory that was named, absolute, or the default place for `page` (the host's default size if
/// none was named). Links are not followed: the library refuses a pool behind one.
pub(crate) fn dir_or_default(
    dir: Option<&Path>,
    host: &Host,
    page: Option<PageSize>,
) -> Result<PathBuf, Failure> {
    if let Some(dir) = dir {
        // It fails for an empty path only, which is no directory either.
        return Ok(absolute(dir).unwrap_or_else(|_| dir.to_owned()));
    }
    let page = match page.or(host.default_hugepage_size) {
        Some(page) => page,
        None => {
            return Err(Failure {
                class: Class::Host,
                message: "This host has no hugepages".to_owned(),
                fix: Some("prezero doctor".to_owned()),
            });
        }
    };
    default_dir(host, page).ok_or_else(|| no_mount(host, page))
}

fn no_mount(host: &Host, page: PageSize) -> Failure {
    let size = ByteSize(page.bytes()).to_spec();
    let point = match host.default_hugepage_size == Some(page) {
        true => "/dev/hugepages".to_owned(),
        // As systemd's documentation names it for the other size.
        false => format!("/dev/hugepages{size}"),
    };
    Failure {
        class: Class::Host,
        message: format!(
            "There is no hugetlbfs mount with pages of {page} that can be written to, and no directory was named"
        ),
        fix: Some(format!(
            "sudo mkdir -p {point} && sudo mount -t hugetlbfs -o pagesize={size} none {point}"
        )),
    }
}

/// A number of bytes that was given with `option`, as whole pages.
pub(crate) fn whole_pages(option: &str, bytes: u64, page: PageSize) -> Result<PageBytes, Failure> {
    PageBytes::new(bytes, page).ok_or_else(|| {
        let below = page.round_down(bytes);
        let near = [below, below.saturating_add(page.bytes())];
        let near = near.iter().filter(|bytes| **bytes > 0);
        let near: Vec<String> = near.map(|bytes| ByteSize(*bytes).to_spec()).collect();
        Failure {
            class: Class::Usage,
            message: format!(
                "{} is not a whole number of pages of {page}",
                ByteSize(bytes)
            ),
            fix: Some(format!("{option} {}", near.join(" or "))),
        }
    })
}

#[cfg(test)]
mod tests {
    use prezero_host::HugetlbfsMount;

    use super::*;

    fn mount(path: &str, page_size: PageSize, read_only: bool) -> HugetlbfsMount {
        HugetlbfsMount {
            path: path.into(),
            page_size: Some(page_size),
            size_limit: None,
            read_only,
            covered: Vec::new(),
        }
    }

    #[test]
    fn the_default_place_is_on_the_first_writable_mount_of_the_page_size() {
        let host = Host {
            default_hugepage_size: Some(PageSize::HUGE_2M),
            mounts: vec![
                mount("/ro", PageSize::HUGE_2M, true),
                mount("/big", PageSize::HUGE_1G, false),
                mount("/first", PageSize::HUGE_2M, false),
                mount("/second", PageSize::HUGE_2M, false),
            ],
            ..Host::default()
        };
        let default = |page| default_dir(&host, page);
        assert_eq!(default(PageSize::HUGE_2M), Some("/first/prezero".into()));
        assert_eq!(default(PageSize::HUGE_1G), Some("/big/prezero".into()));
        let found = dir_or_default(None, &host, None).expect("a mount");
        assert_eq!(found, Path::new("/first/prezero"));
    }

    #[test]
    fn without_a_mount_the_fix_makes_one_of_the_page_size() {
        let host = Host {
            default_hugepage_size: Some(PageSize::HUGE_2M),
            ..Host::default()
        };
        for (page, options) in [
            (None, "-o pagesize=2M none /dev/hugepages"),
            (
                Some(PageSize::HUGE_1G),
                "-o pagesize=1G none /dev/hugepages1G",
            ),
        ] {
            let failure = dir_or_default(None, &host, page).expect_err("no mount");
            assert_eq!(failure.class, Class::Host);
            let fix = failure.fix.expect("something to type");
            assert!(fix.ends_with(options), "{fix}");
        }
        // A directory that was named is judged by the library.
        let named = dir_or_default(Some(Path::new("/x")), &host, None);
        assert_eq!(named.expect("taken as it is"), Path::new("/x"));
    }
}
