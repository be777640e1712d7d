//! The ways to make the same machine, each of which is a row for each size.

use std::fmt;

use prezero_memory::{ByteSize, Origin};

use super::Size;

/// How the memory of a machine comes to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// On fresh pages, which the kernel clears.
    Fresh,
    /// On recycled pages that hold other bytes, cleared with the kernel's own stores, a base page at a time.
    RecycledCached,
    /// The same with uncached stores.
    RecycledUncached,
    /// On recycled pages that are known to be zero.
    RecycledClean,
    /// QEMU with one thread that touches the pages: its default.
    QemuOneThread,
    /// QEMU at its best: as many threads as CPUs, kept on them.
    QemuThreads,
    /// Cloud Hypervisor with `prefault=on`.
    CloudHypervisor,
}

impl Way {
    /// The word used in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::RecycledCached => "recycled-cached",
            Self::RecycledUncached => "recycled-uncached",
            Self::RecycledClean => "recycled-clean",
            Self::QemuOneThread => "prealloc",
            Self::QemuThreads => "prealloc-threads",
            Self::CloudHypervisor => "prefault",
        }
    }

    /// The other monitor that makes it, if it is another.
    pub(crate) fn peer(self) -> Option<&'static str> {
        match self {
            Self::QemuOneThread | Self::QemuThreads => Some("qemu"),
            Self::CloudHypervisor => Some("cloud-hypervisor"),
            _ => None,
        }
    }

    /// What prezero's report has to say of all of the memory.
    pub(crate) fn origin(self) -> Origin {
        match self {
            Self::RecycledCached | Self::RecycledUncached => Origin::Dirty,
            Self::RecycledClean => Origin::Clean,
            _ => Origin::Fresh,
        }
    }

    /// The part of creation that clears memory, as far as there is one that can be seen: other monitors do not
    /// show theirs.
    pub(crate) fn work(self) -> Option<&'static str> {
        match self {
            Self::Fresh => Some("populate"),
            Self::RecycledCached | Self::RecycledUncached => Some("clear"),
            Self::RecycledClean => None,
            Self::QemuOneThread | Self::QemuThreads | Self::CloudHypervisor => None,
        }
    }
}

/// One way at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) way: Way,
    /// The guest's memory in bytes.
    pub(crate) bytes: u64,
    /// How many threads are asked to do it; none where the monitor decides.
    pub(crate) workers: Option<usize>,
    /// Whether those are the fewest that can.
    pub(crate) is_least: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(peer) = self.way.peer() {
            write!(f, "{peer} ")?;
        }
        f.write_str(self.way.name())?;
        if let Some(workers) = self.workers {
            write!(f, " {workers}w")?;
        }
        write!(f, " {}", ByteSize(self.bytes).to_spec())
    }
}

/// What rows there are.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    pub(crate) sizes: Vec<Size>,
    /// Whether there is a place for recycled memory.
    pub(crate) recycled: bool,
    /// Whether this CPU has uncached stores.
    pub(crate) uncached: bool,
    pub(crate) qemu: bool,
    pub(crate) cloud_hypervisor: bool,
}

impl Ways {
    /// The rows, size by size. The first of each is the one that the others are compared with.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let of_size = |&size| self.of_size(size);
        self.sizes.iter().flat_map(of_size).collect()
    }

    fn of_size(&self, size: Size) -> Vec<Row> {
        let Size { bytes, least, all } = size;
        let mut ways = vec![(Way::Fresh, Some(least)), (Way::Fresh, Some(all))];
        if self.recycled {
            ways.push((Way::RecycledCached, Some(least)));
            if self.uncached {
                ways.push((Way::RecycledUncached, Some(least)));
                ways.push((Way::RecycledUncached, Some(all)));
            }
            ways.push((Way::RecycledClean, Some(all)));
        }
        if self.qemu {
            ways.push((Way::QemuOneThread, Some(1)));
            ways.push((Way::QemuThreads, Some(all)));
        }
        if self.cloud_hypervisor {
            ways.push((Way::CloudHypervisor, None));
        }
        // Where there is one CPU, or one for each node, all of them is no other row.
        ways.dedup();
        let row = |(way, workers)| Row {
            way,
            bytes,
            workers,
            is_least: workers == Some(least),
        };
        ways.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(least: usize, all: usize) -> Ways {
        let size = |bytes| Size { bytes, least, all };
        Ways {
            sizes: vec![size(1 << 30), size(4 << 30)],
            recycled: true,
            uncached: true,
            qemu: true,
            cloud_hypervisor: true,
        }
    }

    #[test]
    fn every_size_has_every_way_and_begins_with_what_the_kernel_does_alone() {
        let rows = ways(1, 8).rows();
        assert_eq!(rows.len(), 2 * 9);
        for (n, bytes) in [1_u64 << 30, 4 << 30].into_iter().enumerate() {
            let rows = &rows[9 * n..9 * (n + 1)];
            assert!(rows.iter().all(|row| row.bytes == bytes));
            assert_eq!((rows[0].way, rows[0].workers), (Way::Fresh, Some(1)));
            let uncached = |row: &&Row| row.way == Way::RecycledUncached;
            let workers = rows.iter().filter(uncached).map(|row| row.workers);
            assert_eq!(workers.collect::<Vec<_>>(), [Some(1), Some(8)]);
        }
    }

    #[test]
    fn with_one_cpu_no_row_is_there_twice() {
        let rows = ways(1, 1).rows();
        assert_eq!(rows.len(), 2 * 7);
    }

    #[test]
    fn memory_on_several_nodes_has_rows_of_a_worker_for_each_and_no_key_twice() {
        for (least, all, of_size) in [(2, 8, 9), (2, 2, 7)] {
            let rows = ways(least, all).rows();
            assert_eq!(rows.len(), 2 * of_size);
            let own = rows.iter().filter(|row| row.way.peer().is_none());
            for row in own {
                let same = |other: &&Row| {
                    (other.way, other.bytes, other.workers) == (row.way, row.bytes, row.workers)
                };
                assert_eq!(rows.iter().filter(same).count(), 1, "{row}");
                assert!(row.workers == Some(if row.is_least { least } else { all }));
            }
            assert!(rows[0].is_least);
        }
    }

    #[test]
    fn what_is_not_there_has_no_rows() {
        let few = Ways {
            uncached: false,
            qemu: false,
            cloud_hypervisor: false,
            ..ways(1, 2)
        };
        let rows = few.rows();
        let names: Vec<&str> = rows[..4].iter().map(|row| row.way.name()).collect();
        assert_eq!(
            names,
            ["fresh", "fresh", "recycled-cached", "recycled-clean"]
        );
        let fresh = Ways {
            recycled: false,
            ..ways(1, 2)
        };
        assert!(
            fresh
                .rows()
                .iter()
                .all(|row| row.way.origin() == Origin::Fresh)
        );
        assert_eq!(fresh.rows().len(), 2 * 5);
    }
}
