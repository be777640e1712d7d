//! System calls for memory policies: what libc has no wrapper for.

use std::io;

use prezero_host::{IdSet, PageSize};

use super::Policy;
use crate::sys::check;

const BITS: usize = u64::BITS as usize;

/// linux/mempolicy.h (Linux 5.15); libc has the older ones only.
const MPOL_PREFERRED_MANY: i32 = 5;
/// set_mempolicy_home_node(2) (Linux 5.17), the same number on every architecture.
const SYS_SET_MEMPOLICY_HOME_NODE: libc::c_long = 450;

/// A set of nodes as the kernel takes it, and its `maxnode`.
struct NodeMask {
    words: Vec<u64>,
    /// The kernel takes `maxnode` − 1 bits (mm/mempolicy.c, `get_nodes`): highest node + 2.
    max_node: u64,
}

impl NodeMask {
    fn new(nodes: impl IntoIterator<Item = u32>) -> Self {
        let mut mask = Self {
            words: Vec::new(),
            max_node: 1,
        };
        for node in nodes {
            let (word, bit) = (node as usize / BITS, node as usize % BITS);
            let len = mask.words.len().max(word + 1);
            mask.words.resize(len, 0);
            mask.words[word] |= 1 << bit;
            mask.max_node = mask.max_node.max(u64::from(node) + 2);
        }
        mask
    }
}

/// mbind(2): pages of the range come from `nodes` as `policy` says, or for a preference from `node`
/// before the others. Says nothing about pages that are there already.
pub(crate) fn keep_to(
    addr: u64,
    len: u64,
    policy: Policy,
    nodes: &IdSet,
    node: u32,
) -> io::Result<()> {
    match policy {
        Policy::Bind => mbind(addr, len, libc::MPOL_BIND, nodes),
        Policy::Interleave => mbind(addr, len, libc::MPOL_INTERLEAVE, nodes),
        Policy::Preferred if nodes.len() > 1 => prefer_many(addr, len, nodes, node),
        Policy::Preferred => mbind(addr, len, libc::MPOL_PREFERRED, nodes),
    }
}

fn mbind(addr: u64, len: u64, mode: i32, nodes: &IdSet) -> io::Result<()> {
    let mask = NodeMask::new(nodes);
    // SAFETY: the mask is live and holds max_node − 1 bits; a policy changes no contents.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            addr,
            len,
            c_ulong_of(mode),
            mask.words.as_ptr(),
            mask.max_node,
            0_u64,
        )
    };
    check(result).map(drop)
}

/// `MPOL_PREFERRED_MANY`, with `node` as the one to begin with; on kernels before 5.15 `node` alone
/// is preferred.
fn prefer_many(addr: u64, len: u64, nodes: &IdSet, node: u32) -> io::Result<()> {
    match mbind(addr, len, MPOL_PREFERRED_MANY, nodes) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            return mbind(addr, len, libc::MPOL_PREFERRED, &IdSet::from_iter([node]));
        }
        result => result?,
    }
    // Without a home node it is the node of the CPU that populates, which is the same one unless it
    // has no CPUs. So a kernel or a filter that refuses this costs the order of nodes at most.
    // SAFETY: no memory operand; a policy changes no contents.
    let _ = unsafe {
        libc::syscall(
            SYS_SET_MEMPOLICY_HOME_NODE,
            addr,
            len,
            u64::from(node),
            0_u64,
        )
    };
    Ok(())
}

/// set_mempolicy(2) for the time of a call: allocations and hugepage reservations of this thread
/// are bound to `node` while `f` runs, and the thread's own policy is put back after it.
///
/// This makes mmap of hugetlb memory fail when the node's pool is short (as long as nobody else has
/// reserved pages: the kernel counts reservations for the whole host); with mbind alone it succeeds
/// and the first touch fails.
///
/// # Errors
///
/// Of the policy calls; what `f` returns is passed on.
pub(crate) fn bound_to<T>(node: u32, f: impl FnOnce() -> T) -> io::Result<T> {
    let old = ThreadPolicy::of_this_thread()?;
    let mask = NodeMask::new([node]);
    // SAFETY: the mask is live and holds max_node − 1 bits.
    check(unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            c_ulong_of(libc::MPOL_BIND),
            mask.words.as_ptr(),
            mask.max_node,
        )
    })?;
    let old = RestoreOnDrop(Some(old));
    let result = f();
    old.restore().map(|()| result)
}

/// A thread's memory policy.
struct ThreadPolicy {
    mode: i32,
    mask: [u64; 16],
}

impl ThreadPolicy {
    /// get_mempolicy(2).
    fn of_this_thread() -> io::Result<Self> {
        let mut policy = Self {
            mode: libc::MPOL_DEFAULT,
            mask: [0; 16],
        };
        let bits = (policy.mask.len() * BITS) as u64;
        // SAFETY: both pointers are to live memory, the mask of `bits` bits.
        check(unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut policy.mode,
                policy.mask.as_mut_ptr(),
                bits,
                0_u64,
                0_u64,
            )
        })?;
        Ok(policy)
    }

    /// set_mempolicy(2).
    fn set(&self) -> io::Result<()> {
        let (mask, bits) = match self.mode {
            libc::MPOL_DEFAULT => (std::ptr::null(), 0),
            _ => (self.mask.as_ptr(), (self.mask.len() * BITS) as u64),
        };
        // SAFETY: the mask is live and of `bits` bits.
        let result =
            unsafe { libc::syscall(libc::SYS_set_mempolicy, c_ulong_of(self.mode), mask, bits) };
        check(result).map(drop)
    }
}

/// Puts a policy back, also when the work under another one panics.
struct RestoreOnDrop(Option<ThreadPolicy>);

impl RestoreOnDrop {
    fn restore(mut self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), |policy| policy.set())
    }
}

impl Drop for RestoreOnDrop {
    fn drop(&mut self) {
        if let Some(policy) = self.0.take() {
            let _ = policy.set();
        }
    }
}

/// Makes the calls for a policy on address space that is given back at once.
pub(crate) fn attempt(policy: Policy, nodes: &IdSet, node: u32) -> io::Result<()> {
    let len = PageSize::BASE.bytes();
    let addr = crate::sys::reserve_addresses(len)?;
    let bound = match policy {
        Policy::Bind => bound_to(node, || ()),
        _ => Ok(()),
    };
    let kept = bound.and_then(|()| keep_to(addr, len, policy, nodes, node));
    // SAFETY: the range was reserved above and nobody knows it.
    let unmapped = unsafe { crate::sys::unmap(addr, len) };
    kept.and(unmapped)
}

/// syscall(2) passes its arguments as words.
fn c_ulong_of(value: i32) -> libc::c_ulong {
    libc::c_ulong::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_has_a_bit_for_each_node_and_one_that_the_kernel_cuts_off() {
        let mask = NodeMask::new([0]);
        assert_eq!((mask.words, mask.max_node), (vec![1], 2));
        let mask = NodeMask::new([1, 3]);
        assert_eq!((mask.words, mask.max_node), (vec![0b1010], 5));
        // The highest bit of a word takes one more bit than the word has.
        let mask = NodeMask::new([63]);
        assert_eq!((mask.words, mask.max_node), (vec![1 << 63], 65));
        let mask = NodeMask::new([64, 5]);
        assert_eq!((mask.words, mask.max_node), (vec![1 << 5, 1], 66));
    }

    /// The policy that the kernel shows for an anonymous mapping, or `None` where it has none or
    /// refuses to set one.
    fn shown(set: impl FnOnce(u64, u64) -> io::Result<()>) -> Option<String> {
        let len = 2 << 20;
        let addr = crate::sys::reserve_addresses(len).expect("a little address space");
        let result = set(addr, len);
        let text = std::fs::read_to_string("/proc/self/numa_maps").ok();
        // SAFETY: the range was reserved above and nobody knows it.
        unsafe { crate::sys::unmap(addr, len) }.expect("its own mapping");
        result.ok()?;
        let start = format!("{addr:x} ");
        let text = text?;
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.map(str::to_owned)
    }

    #[test]
    fn the_kernel_knows_the_policy() {
        let nodes: IdSet = "0".parse().unwrap();
        let set = |policy| {
            let nodes = nodes.clone();
            move |addr, len| keep_to(addr, len, policy, &nodes, 0)
        };
        if shown(set(Policy::Bind)).is_none() {
            return prezero_testkit::skip("numa", "memory policies and /proc/self/numa_maps");
        }
        for (policy, text) in [
            (Policy::Bind, "bind:0 "),
            (Policy::Preferred, "prefer:0 "),
            (Policy::Interleave, "interleave:0 "),
        ] {
            let line = shown(set(policy)).expect("a policy that older kernels have too");
            assert!(format!("{line} ").starts_with(text), "{line}");
        }
        let line = shown(|addr, len| prefer_many(addr, len, &nodes, 0)).expect("or its fallback");
        let known = ["prefer (many):0 ", "prefer=many:0 ", "prefer:0 "];
        assert!(
            known
                .iter()
                .any(|text| format!("{line} ").starts_with(text)),
            "{line}"
        );
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let nodes: IdSet = "0,1000".parse().unwrap();
        assert_eq!(
            shown(|addr, len| mbind(addr, len, libc::MPOL_BIND, &"1000".parse().unwrap())),
            None
        );
        assert_eq!(NodeMask::new(&nodes).max_node, 1002);
    }
}
