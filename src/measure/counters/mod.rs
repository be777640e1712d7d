//! Hardware counters of the threads that are measured, where the CPU has them and the kernel lets this
//! process read them: cycles, loads from the L1 data cache, and loads that miss it.
//!
//! The counters of a thread are a group, which the kernel puts on the CPU together or not at all. If
//! others count, too, a group has the CPU's counters for a part of the time; what it counted is then
//! scaled up to all of it, as perf stat does.

mod reason;
mod sys;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use self::sys::{Event, Whose};

pub(crate) use self::reason::Unavailable;

/// PERF_COUNT_HW_CPU_CYCLES.
const CYCLES: Event = Event { kind: 0, config: 0 };
/// PERF_COUNT_HW_CACHE_L1D, read, access.
const L1_DCACHE_LOADS: Event = Event { kind: 3, config: 0 };
/// The same, misses.
const L1_DCACHE_LOAD_MISSES: Event = Event {
    kind: 3,
    config: 1 << 16,
};
/// The first has to be there, the others may be absent.
const EVENTS: [Event; 3] = [CYCLES, L1_DCACHE_LOADS, L1_DCACHE_LOAD_MISSES];

/// Whose work is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What the threads do themselves.
    User,
    /// The kernel's work for them, too. Ordinary users are less often allowed to see that.
    All,
}

impl Scope {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::All => "user and kernel",
        }
    }
}

/// What was counted, of all threads together. `None` is an event that the CPU does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) cycles: Option<u64>,
    pub(crate) l1_dcache_loads: Option<u64>,
    pub(crate) l1_dcache_load_misses: Option<u64>,
}

impl Counts {
    /// In the order of [`EVENTS`].
    fn of(values: [Option<u64>; EVENTS.len()]) -> Self {
        let [cycles, l1_dcache_loads, l1_dcache_load_misses] = values;
        Self {
            cycles,
            l1_dcache_loads,
            l1_dcache_load_misses,
        }
    }

    fn values(&self) -> [Option<u64>; EVENTS.len()] {
        [
            self.cycles,
            self.l1_dcache_loads,
            self.l1_dcache_load_misses,
        ]
    }

    /// What passes come to on average; `None` unless each was counted.
    pub(crate) fn mean(passes: &[Option<Self>]) -> Option<Self> {
        let passes: Vec<Self> = passes.iter().copied().collect::<Option<_>>()?;
        let count = passes.len() as u64;
        let sum = passes.into_iter().reduce(Self::and)?;
        Some(Self::of(sum.values().map(|value| Some(value? / count))))
    }

    /// Of what was counted while so much was done, what falls to a part of it.
    pub(crate) fn part(self, part: u64, of: u64) -> Self {
        let value = |count: u64| {
            let scaled = u128::from(count) * u128::from(part) / u128::from(of.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Self::of(self.values().map(|count| count.map(value)))
    }

    /// The counts of both.
    pub(crate) fn and(self, other: Self) -> Self {
        let mut values = self.values();
        for (value, other) in values.iter_mut().zip(other.values()) {
            *value = value.zip(other).map(|(a, b)| a.saturating_add(b));
        }
        Self::of(values)
    }
}

/// The counters of some threads. They count as long as they live.
#[derive(Debug)]
pub(crate) struct Counters(Vec<Group<{ EVENTS.len() }>>);

/// What the counters show at one time.
#[derive(Clone, Debug)]
pub(crate) struct Reading(Vec<GroupReading<{ EVENTS.len() }>>);

impl Counters {
    /// Counts what these threads of this process do, or the calling one if the number is 0.
    pub(crate) fn open(threads: &[libc::pid_t], scope: Scope) -> Result<Self, Unavailable> {
        let whose = threads.iter().copied().map(Whose::Thread);
        Self::of(whose, scope)
    }

    /// Counts what the programs do that the calling thread starts: each from its exec on, and in what
    /// is read from when it has been waited for.
    pub(crate) fn of_programs(scope: Scope) -> Result<Self, Unavailable> {
        Self::of([Whose::Programs].into_iter(), scope)
    }

    fn of(whose: impl Iterator<Item = Whose>, scope: Scope) -> Result<Self, Unavailable> {
        let groups = whose.map(|whose| Group::open(EVENTS, whose, scope));
        let groups: io::Result<Vec<_>> = groups.collect();
        groups
            .map(Self)
            .map_err(|error| Unavailable::here(&error, scope))
    }

    pub(crate) fn read(&self) -> io::Result<Reading> {
        let readings = self.0.iter().map(Group::read);
        readings.collect::<io::Result<_>>().map(Reading)
    }

    /// What was counted since then; `None` if the CPU's counters were taken all the while.
    pub(crate) fn since(&self, before: &Reading) -> Option<Counts> {
        let after = self.read().ok()?;
        let groups = before.0.iter().zip(&after.0);
        let counts = groups.map(|(before, after)| Some(Counts::of(after.since(before)?)));
        counts
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .reduce(Counts::and)
    }
}

/// Counters of one thread, or of programs, that count at the same times.
#[derive(Debug)]
struct Group<const N: usize> {
    /// The first is there, and is read for all.
    files: [Option<File>; N],
}

/// Counts, and for how long they were wanted and had, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct GroupReading<const N: usize> {
    values: [Option<u64>; N],
    enabled: u64,
    running: u64,
}

impl<const N: usize> Group<N> {
    fn open(events: [Event; N], whose: Whose, scope: Scope) -> io::Result<Self> {
        let user_only = scope == Scope::User;
        let mut files = [const { None }; N];
        for (n, event) in events.into_iter().enumerate() {
            let first = files[0].as_ref().map(File::as_fd);
            match sys::open(event, user_only, whose, first) {
                Ok(fd) => files[n] = Some(File::from(fd)),
                // What holds for the first holds for all.
                Err(error) if n == 0 => return Err(error),
                Err(_) => {}
            }
        }
        if whose == Whose::Programs {
            return Ok(Self { files });
        }
        // Not before all are there: one that joins a group which counts already may be left out until
        // its thread is switched to the next time.
        if let Some(first) = &files[0] {
            sys::enable(first.as_fd())?;
        }
        Ok(Self { files })
    }

    fn read(&self) -> io::Result<GroupReading<N>> {
        const WORD: usize = size_of::<u64>();
        let Some(mut first) = self.files[0].as_ref() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        // How many, enabled, running, and one value each: no group has as many as there is room for.
        let mut bytes = [0; 16 * WORD];
        let len = first.read(&mut bytes)?;
        let mut words = bytes[..len].chunks_exact(WORD).map(|word| {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(word);
            u64::from_ne_bytes(bytes)
        });
        let mut next = || words.next().ok_or(io::ErrorKind::UnexpectedEof);
        let (_, enabled, running) = (next()?, next()?, next()?);
        let mut values = [None; N];
        for (value, file) in values.iter_mut().zip(&self.files) {
            if file.is_some() {
                *value = Some(next()?);
            }
        }
        Ok(GroupReading {
            values,
            enabled,
            running,
        })
    }
}

impl<const N: usize> GroupReading<N> {
    fn since(&self, before: &Self) -> Option<[Option<u64>; N]> {
        let enabled = self.enabled.saturating_sub(before.enabled);
        let running = self.running.saturating_sub(before.running);
        if running == 0 && enabled > 0 {
            return None;
        }
        let mut counted = self.values;
        for (value, before) in counted.iter_mut().zip(before.values) {
            *value = value.zip(before).map(|(after, before)| {
                let counted = u128::from(after.saturating_sub(before));
                let all = counted * u128::from(enabled.max(1)) / u128::from(running.max(1));
                u64::try_from(all).unwrap_or(u64::MAX)
            });
        }
        Some(counted)
    }
}

#[cfg(test)]
mod tests;
