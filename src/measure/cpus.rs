//! Which CPU a measuring thread is on.

use prezero_host::Host;
use prezero_memory::Class;

use crate::failure::Failure;

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

/// So many threads for each CPU still say something about sharing one; many more only use up the host's threads.
const FOR_EACH_CPU: usize = 16;

/// Refuses many more threads than there are CPUs. `option` is where they were typed.
pub(crate) fn check(option: &str, threads: usize, host: &Host) -> Result<(), Failure> {
    let cpus = host.unasked_cpus().len().max(1);
    if threads <= cpus.saturating_mul(FOR_EACH_CPU) {
        return Ok(());
    }
    Err(Failure {
        class: Class::Usage,
        message: format!("{threads} threads on {cpus} CPUs are more than {FOR_EACH_CPU} for each"),
        fix: Some(format!("{option} {cpus}")),
    })
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
