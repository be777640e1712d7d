//! The host CPUs that threads of vCPUs are kept to.

use prezero_host::Host;
use prezero_memory::{Class, IdSet};

use crate::failure::Failure;

/// The CPUs of `--cpu-affinity` in their order, one for each vCPU.
pub(super) fn parse(list: &str, vcpus: u32) -> Result<Vec<u32>, Failure> {
    let usage = |message: String| Failure {
        class: Class::Usage,
        message,
        fix: Some(format!(
            "--cpu-affinity with {vcpus} CPUs, such as 0-{}",
            vcpus.saturating_sub(1)
        )),
    };
    let mut cpus: Vec<u32> = Vec::new();
    for part in list.split(',') {
        let part: Result<IdSet, _> = part.parse();
        let part = part.ok().filter(|part| !part.is_empty());
        let part =
            part.ok_or_else(|| usage(format!("{list:?} of --cpu-affinity is not a list of CPUs")))?;
        cpus.extend(part.iter());
    }
    if cpus.len() != vcpus as usize {
        let count = cpus.len();
        return Err(usage(format!(
            "--cpu-affinity names {count} CPUs, --cpus asks for {vcpus} vCPUs"
        )));
    }
    Ok(cpus)
}

/// Each of these CPUs alone.
pub(super) fn pinned(cpus: &[u32], host: &Host) -> Result<Vec<IdSet>, Failure> {
    if let Some(cpu) = cpus.iter().find(|&&cpu| !host.allowed_cpus.contains(cpu)) {
        return Err(Failure {
            class: Class::Host,
            message: format!(
                "CPU {cpu} of --cpu-affinity is not among those that this process may use, {}",
                host.allowed_cpus
            ),
            fix: Some(format!("--cpu-affinity with CPUs of {}", host.allowed_cpus)),
        });
    }
    Ok(cpus.iter().map(|&cpu| IdSet::from_iter([cpu])).collect())
}

/// The CPUs of these nodes that nobody has to ask for; none, which means anywhere, where they have none.
pub(super) fn near(nodes: &IdSet, host: &Host) -> IdSet {
    let usable = host.unasked_cpus();
    let nodes = nodes.iter().filter_map(|node| host.node(node));
    nodes
        .flat_map(|node| node.cpus.iter())
        .filter(|&cpu| usable.contains(cpu))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order() {
        let cpus = |list: &str, vcpus| parse(list, vcpus).map_err(|failure| failure.message);
        assert_eq!(cpus("3,0-1", 3), Ok(vec![3, 0, 1]));
        assert_eq!(cpus("2,2", 2), Ok(vec![2, 2]));
        for (list, vcpus) in [
            ("0-1", 3),
            ("0-1", 1),
            ("", 1),
            ("a", 1),
            ("0,", 1),
            ("1-0", 2),
        ] {
            assert!(cpus(list, vcpus).is_err(), "{list}");
        }
    }

    #[test]
    fn a_cpu_that_this_process_may_not_use_is_refused() {
        let host = Host::probe();
        let failure = pinned(&[100_000], &host).expect_err("no such CPU");
        assert_eq!(failure.class, Class::Host);
        let first = host.allowed_cpus.first().expect("one at least");
        assert_eq!(
            pinned(&[first], &host).expect("usable"),
            [IdSet::from_iter([first])]
        );
    }
}
