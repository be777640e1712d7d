//! Which CPU is the neighbour's, and on which ones memory is cleared next to it.

use std::fs;

use prezero_host::IdSet;

/// The CPUs of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) foreground: u32,
    /// One for each thread.
    pub(crate) background: Vec<u32>,
    /// Whether the first of them has the foreground's last-level cache; `None` where the host does not
    /// say.
    pub(crate) same_cache: Option<bool>,
    /// Whether one of them is another thread of the foreground's core.
    pub(crate) same_core: bool,
}

impl Place {
    /// Both on the only CPU there is.
    pub(crate) fn is_one_cpu(&self) -> bool {
        self.background.contains(&self.foreground)
    }
}

/// What a CPU shares with others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// The CPUs of its core, itself among them.
    core: IdSet,
    /// Those of its last-level cache.
    cache: IdSet,
}

impl Sharing {
    /// `topology/thread_siblings_list` and the `cache/index*` of the highest `level`, below
    /// /sys/devices/system/cpu/cpuN (Documentation/ABI/stable/sysfs-devices-system-cpu).
    pub(crate) fn of(cpu: u32) -> Self {
        let dir = format!("/sys/devices/system/cpu/cpu{cpu}");
        let read = |file: &str| fs::read_to_string(format!("{dir}/{file}")).ok();
        let list = |file: &str| read(file)?.trim().parse::<IdSet>().ok();
        let level = |index: &u32| {
            let level = read(&format!("cache/index{index}/level"))?;
            level.trim().parse::<u32>().ok()
        };
        let last = (0..16)
            .filter_map(|index| Some((level(&index)?, index)))
            .max();
        let cache =
            last.and_then(|(_, index)| list(&format!("cache/index{index}/shared_cpu_list")));
        Self {
            core: list("topology/thread_siblings_list").unwrap_or_default(),
            cache: cache.unwrap_or_default(),
        }
    }
}

/// The first CPU is the foreground's. Those next to it that have its cache, but not its core, come
/// first: there is what neighbours share. `sharing` is the first CPU's.
pub(crate) fn place(cpus: &[u32], threads: usize, sharing: &Sharing) -> Option<Place> {
    let (&foreground, others) = cpus.split_first()?;
    let mut others = others.to_vec();
    others.retain(|cpu| *cpu != foreground);
    others.sort_by_key(|cpu| (sharing.core.contains(*cpu), !sharing.cache.contains(*cpu)));
    if others.is_empty() {
        others.push(foreground);
    }
    Some(named(foreground, &others, threads, sharing))
}

/// These CPUs in this order.
pub(crate) fn named(foreground: u32, others: &[u32], threads: usize, sharing: &Sharing) -> Place {
    let background: Vec<u32> = others.iter().copied().cycle().take(threads).collect();
    let known = !sharing.cache.is_empty();
    let first = background.first().copied();
    Place {
        same_cache: first
            .filter(|_| known)
            .map(|cpu| sharing.cache.contains(cpu)),
        same_core: background
            .iter()
            .any(|cpu| *cpu != foreground && sharing.core.contains(*cpu)),
        foreground,
        background,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharing(core: &str, cache: &str) -> Sharing {
        let list = |text: &str| match text {
            "" => IdSet::default(),
            text => text.parse().expect("a list"),
        };
        Sharing {
            core: list(core),
            cache: list(cache),
        }
    }

    #[test]
    fn the_background_is_next_to_the_foreground_but_not_on_its_core() {
        // Eight CPUs: 0 and 1 are a core, 0 to 3 have one cache.
        let cpus: Vec<u32> = (0..8).collect();
        let place = place(&cpus, 3, &sharing("0-1", "0-3")).expect("CPUs");
        assert_eq!(
            (place.foreground, &place.background[..]),
            (0, &[2, 3, 4][..])
        );
        assert_eq!((place.same_cache, place.same_core), (Some(true), false));
    }

    #[test]
    fn a_core_is_shared_only_if_there_is_no_other() {
        let place = place(&[4, 5], 2, &sharing("4-5", "4-5")).expect("CPUs");
        assert_eq!((place.foreground, &place.background[..]), (4, &[5, 5][..]));
        assert!(place.same_core && !place.is_one_cpu());
    }

    #[test]
    fn the_only_cpu_has_both() {
        let place = place(&[7], 1, &sharing("7", "")).expect("a CPU");
        assert!(place.is_one_cpu() && !place.same_core);
        assert_eq!(place.same_cache, None);
        assert_eq!(super::place(&[], 1, &Sharing::default()), None);
    }
}
