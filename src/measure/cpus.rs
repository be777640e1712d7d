//! Which CPU a measuring thread is on.

use prezero_host::{Host, IdSet};
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

/// The calling thread on one CPU or some, for as long as this lives; afterwards it may go where it might before. What it
/// starts meanwhile stays there.
#[derive(Debug)]
pub(crate) struct Kept {
    before: Option<sys::Mask>,
}

impl Kept {
    pub(crate) fn on(cpu: Option<u32>) -> Self {
        // What cannot be put back is not changed.
        let before = sys::affinity().ok().filter(|_| pin(cpu));
        Self { before }
    }

    /// Those it may not use are left out; if there are no others, it stays where it is.
    pub(super) fn among(cpus: &IdSet) -> Self {
        let before = sys::affinity().ok();
        let before = before.filter(|_| sys::set_affinity(&sys::mask(cpus.iter())).is_ok());
        Self { before }
    }

    /// Whether it is.
    pub(crate) fn is_pinned(&self) -> bool {
        self.before.is_some()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sys::set_affinity(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_on_its_cpu_and_let_go_again() {
        let before = sys::affinity().expect("its own");
        let cpu = (0..u32::MAX).find(|cpu| before[*cpu as usize / 64] >> (cpu % 64) & 1 == 1);
        let kept = Kept::on(cpu);
        assert!(kept.is_pinned());
        let now = sys::affinity().expect("its own");
        assert_eq!(now.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
        drop(kept);
        assert_eq!(sys::affinity().expect("its own"), before);
        // The last one, and one that nobody has.
        let mut last = (0..8192_u32).rev();
        let last = last.find(|cpu| before[*cpu as usize / 64] >> (cpu % 64) & 1 == 1);
        let some: IdSet = last.into_iter().chain([u32::MAX]).collect();
        let kept = Kept::among(&some);
        assert!(kept.is_pinned());
        let now = sys::affinity().expect("its own");
        assert_eq!(now, sys::mask(last));
        drop(kept);
        assert_eq!(sys::affinity().expect("its own"), before);
        assert!(!Kept::among(&IdSet::default()).is_pinned());
        assert!(!Kept::on(None).is_pinned());
        assert!(!Kept::on(Some(u32::MAX)).is_pinned());
        assert_eq!(sys::affinity().expect("its own"), before);
    }

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
