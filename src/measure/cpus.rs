//! Which CPU a measuring thread is on.

use prezero_host::Host;

use super::sys;

/// One CPU for each of so many threads, in turn if there are fewer: `None` where the host does not say
/// which CPUs there are.
pub(crate) fn in_turn(host: &Host, threads: usize) -> Vec<Option<u32>> {
    let cpus: Vec<u32> = host.unasked_cpus().iter().collect();
    let known = host.topology_known && !cpus.is_empty();
    let of = |n: usize| known.then(|| cpus[n % cpus.len()]);
    (0..threads).map(of).collect()
}

/// Keeps the calling thread on this CPU; whether it is.
pub(super) fn pin(cpu: Option<u32>) -> bool {
    cpu.is_some_and(|cpu| sys::pin_this_thread(cpu).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_cpus_in_turn_and_leave_isolated_ones_alone() {
        let host = Host {
            topology_known: true,
            allowed_cpus: "0-3".parse().expect("a list"),
            isolated_cpus: "1".parse().expect("a list"),
            ..Host::default()
        };
        assert_eq!(in_turn(&host, 4), [Some(0), Some(2), Some(3), Some(0)]);
        let unknown = Host {
            topology_known: false,
            ..host
        };
        assert_eq!(in_turn(&unknown, 2), [None, None]);
    }
}
