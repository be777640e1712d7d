//! How long it takes to pin memory for a device: when it is fresh, when it has been populated, and when it
//! is recycled.
//!
//! A VMM that attaches a device through VFIO has the kernel pin all guest memory for good, and what is not
//! there yet is faulted in and cleared under that call, by one thread. io_uring's registered buffers pin
//! with the same function of the kernel (`pin_user_pages` with `FOLL_LONGTERM`) and need no device.

use std::time::Duration;

use io_uring::IoUring;
use prezero_host::IdSet;
use prezero_memory::{ByteSize, Cancel, Control, GuestRam, State};

use super::no_pin::{no_ring, not_pinned};
use super::recycled::{Segments, reserve_fresh};
use super::{Pages, Place, child, sys};
use crate::clock;
use crate::failure::Failure;
use crate::measure::cpus::Kept;
use crate::measure::rounds::interleave;
use crate::measure::warning::{self, Warning};

/// The largest buffer that can be registered (`io_sqe_buffer_register` in the kernel's io_uring/rsrc.c), in
/// bytes.
pub(crate) const PIECE: u64 = 1 << 30;

/// What is known about memory that is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Reserved and not there.
    Fresh,
    /// There, in this process's page tables.
    Populated,
    /// There in a file, and not yet seen by this process.
    Recycled,
}

impl Memory {
    /// Where there is no place for recycled memory the last one is left out.
    fn all(place: &Place) -> &'static [Self] {
        match place.pool() {
            Ok(_) => &[Self::Fresh, Self::Populated, Self::Recycled],
            Err(_) => &[Self::Fresh, Self::Populated],
        }
    }

    /// The word used in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Populated => "populated",
            Self::Recycled => "recycled",
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pins {
    pub(crate) rows: Vec<Row>,
    /// Why there are none.
    pub(crate) not_available: Option<String>,
}

/// Memory of one kind and size.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) memory: Memory,
    /// Its size.
    pub(crate) bytes: u64,
    /// How long each pin took, in the order of the rounds.
    pub(crate) samples: Vec<Duration>,
}

impl Pins {
    /// What the samples give away; how many there are has been said of the machines.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let rows = self.rows.iter().map(|row| {
            let name = format!(
                "pin {} {}",
                row.memory.name(),
                ByteSize(row.bytes).to_spec()
            );
            (
                name,
                row.samples.iter().map(Duration::as_secs_f64).collect(),
            )
        });
        let rows: Vec<(String, Vec<f64>)> = rows.collect();
        let mut found = warning::of_samples(&rows);
        found.retain(|warning| !matches!(warning, Warning::FewRuns { .. }));
        found
    }
}

/// Why no pin was timed.
enum NoPin {
    /// The kernel does not do it for this process.
    Refused(String),
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for NoPin {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Pins memory of each kind and size, `runs` times after one time that is not counted, on the CPUs `on` if some
/// are given. `progress` is told how many bytes have been pinned.
pub(crate) fn measure(
    place: &Place,
    sizes: &[u64],
    pages: Pages,
    runs: usize,
    on: Option<&IdSet>,
    cancel: &Cancel,
    progress: &dyn Fn(u64),
) -> Result<Pins, Failure> {
    // Populating happens on the workers; what pins, and faults in what is not there, is this thread.
    let _kept = on.map(Kept::among);
    let of_size = |&bytes| {
        Memory::all(place)
            .iter()
            .map(move |&memory| (memory, bytes))
    };
    let rows: Vec<(Memory, u64)> = sizes.iter().flat_map(of_size).collect();
    let mut done = 0;
    let samples = interleave(rows.len(), runs, |n| {
        let (memory, bytes) = rows[n];
        let time = pass(place, memory, bytes, pages, cancel)?;
        done += bytes;
        progress(done);
        Ok(time)
    });
    match samples {
        Ok(samples) => {
            let rows = rows.into_iter().zip(samples);
            let rows = rows.map(|((memory, bytes), samples)| Row {
                memory,
                bytes,
                samples,
            });
            Ok(Pins {
                rows: rows.collect(),
                not_available: None,
            })
        }
        Err(NoPin::Refused(why)) => Ok(Pins {
            rows: Vec::new(),
            not_available: Some(why),
        }),
        Err(NoPin::Failed(failure)) => Err(failure),
    }
}

/// All bytes that [`measure`] pins.
pub(crate) fn work(place: &Place, sizes: &[u64], runs: usize) -> u64 {
    let all: u64 = sizes.iter().sum();
    let times = Memory::all(place).len() as u64 * (runs as u64 + 1);
    all.saturating_mul(times)
}

fn pass(
    place: &Place,
    memory: Memory,
    bytes: u64,
    pages: Pages,
    cancel: &Cancel,
) -> Result<Duration, NoPin> {
    if cancel.is_cancelled() {
        return Err(child::stopped().into());
    }
    let control = Control {
        cancel: Some(cancel),
        ..Control::default()
    };
    match memory {
        Memory::Fresh => {
            let (ram, _) = reserve_fresh(bytes, pages)?;
            pin(&ram)
        }
        Memory::Populated => {
            let (ram, workers) = reserve_fresh(bytes, pages)?;
            let populated = ram.populate(&workers, &control);
            let (ram, _) = populated.map_err(|failed| failed.error)?;
            pin(&ram)
        }
        Memory::Recycled => {
            let pool = place.pool().map_err(super::no_pool)?;
            let segments = Segments::make(pool, bytes, pages, cancel)?;
            let (ram, _) = segments.reserve()?;
            pin(&ram)
        }
    }
}

fn pin<S: State>(ram: &GuestRam<S>) -> Result<Duration, NoPin> {
    let extents = ram.extents();
    let extents = extents.map(|extent| (extent.addr(), extent.plan().len().bytes()));
    let pieces: Vec<(u64, u64)> = extents.flat_map(pieces).collect();
    let ring = IoUring::new(1).map_err(|error| NoPin::Refused(no_ring(&error)))?;
    let start = clock::now();
    let pinned = sys::Pin::new(ring, ram, &pieces);
    let time = clock::now().saturating_sub(start);
    let bytes = pieces.iter().map(|(_, len)| len).sum();
    drop(pinned.map_err(|error| NoPin::Refused(not_pinned(&error, bytes)))?);
    Ok(time)
}

/// An extent in parts that can be pinned.
fn pieces((addr, len): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let starts = (0..len.div_ceil(PIECE)).map(|n| n * PIECE);
    starts.map(move |start| (addr + start, PIECE.min(len - start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_that_vary_are_said_by_name() {
        let of = |millis: &[u64]| Pins {
            rows: vec![Row {
                memory: Memory::Populated,
                bytes: 1 << 30,
                samples: millis.iter().copied().map(Duration::from_millis).collect(),
            }],
            not_available: None,
        };
        assert_eq!(of(&[100, 102, 101]).warnings(), []);
        assert_eq!(of(&[100]).warnings(), []);
        let text = of(&[100, 150, 60]).warnings()[0].to_string();
        assert!(text.contains("pin populated 1G"), "{text}");
    }

    #[test]
    fn pieces_are_all_of_an_extent_and_none_is_too_large() {
        let addr = 7 << 40;
        for len in [2 << 20, PIECE, PIECE + (2 << 20), 3 * PIECE] {
            let mut next = addr;
            for (at, piece) in pieces((addr, len)) {
                assert_eq!(at, next);
                assert!(piece > 0 && piece <= PIECE);
                next += piece;
            }
            assert_eq!(next, addr + len);
        }
    }
}
