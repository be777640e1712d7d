//! The pool of the measurement: made when a row needs it, dirty or clean as the row needs it, and gone
//! when one needs fresh pages, so that the hugepages of one machine are enough for all rows.

use std::path::Path;

use prezero_clear::Stores;
use prezero_host::{Host, PageSize};
use prezero_memory::pool::{Lease, Pool, PoolRequest, TakeRequest};
use prezero_memory::{
    Cancel, Class, ClearExtents, ClearRequest, Control, GuestRam, Method, MethodChoice, PageBytes,
    Populated, Recycled, Request, Reserved, Trial, Workers, plan,
};

use super::super::clear::STAIN;
use super::Pages;
use crate::failure::Failure;

/// The largest segments, in bytes. Larger ones save nothing.
const SEGMENT: u64 = 1 << 30;

/// A pool that holds all of one machine's memory and nothing else. Its pages are back on drop.
#[derive(Debug)]
pub(super) struct Segments {
    pool: Option<Pool>,
    bytes: u64,
    pages: Pages,
    clean: bool,
}

impl Segments {
    /// Takes fresh pages for it.
    pub(super) fn make(
        path: &Path,
        bytes: u64,
        pages: Pages,
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        let page = pages.page;
        let segment = segment(bytes, page).ok_or_else(|| Failure {
            class: Class::Usage,
            message: format!("{bytes} bytes are not whole pages of {page}"),
            fix: None,
        })?;
        let request = PoolRequest {
            bytes,
            segment,
            nodes: pages.node.into_iter().collect(),
            exchange_only: false,
        };
        let made = Pool::create(path, &request, &Host::probe(), None, &control(cancel));
        let pool = match made {
            Ok((pool, _)) => Some(pool),
            Err(error) => {
                // What was made by then.
                destroy(Pool::open(path).ok());
                return Err(error.into());
            }
        };
        Ok(Self {
            pool,
            bytes,
            pages,
            clean: true,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether everything in it is zero, and its names say so.
    pub(super) fn is_clean(&self) -> bool {
        self.clean
    }

    /// No byte in it is zero.
    pub(super) fn dirty(&mut self, cancel: &Cancel) -> Result<(), Failure> {
        self.clean = false;
        self.stained(cancel).map(drop)
    }

    /// A run took it, and left it dirty by name.
    pub(super) fn used(&mut self) {
        self.clean = false;
    }

    /// How fast each method clears it, as a run finds out that measures.
    pub(super) fn trials(&mut self, cancel: &Cancel) -> Result<Vec<Trial>, Failure> {
        self.clean = false;
        let (ram, workers) = self.stained(cancel)?;
        let request = ClearRequest {
            extents: ClearExtents::All,
            choice: MethodChoice::Measured,
            ..ClearRequest::default()
        };
        let cleared = ram.clear(&workers, &request, &control(cancel));
        let (_, report) = cleared.map_err(|failed| failed.error)?;
        let trials = report.choices.into_iter().flat_map(|choice| choice.trials);
        Ok(trials.collect())
    }

    fn stained(&self, cancel: &Cancel) -> Result<(GuestRam<Populated>, Workers), Failure> {
        let (reserved, workers) = self.reserve()?;
        Ok((stained(reserved, &workers, cancel)?, workers))
    }

    /// All of it, mapped as a machine has it.
    pub(super) fn reserve(&self) -> Result<(GuestRam<Reserved>, Workers), Failure> {
        let leases = match &self.pool {
            Some(pool) => pool.take(&TakeRequest {
                max_bytes: self.bytes,
                ..TakeRequest::default()
            })?,
            None => Vec::new(),
        };
        let recycled = leases.iter().map(|lease| Recycled {
            len: lease.len(),
            node: lease.node(),
            origin: lease.origin(),
        });
        let request = Request {
            recycled: recycled.collect(),
            ..self.pages.request(self.bytes)
        };
        reserve(&request, leases)
    }
}

fn stained(
    reserved: GuestRam<Reserved>,
    workers: &Workers,
    cancel: &Cancel,
) -> Result<GuestRam<Populated>, Failure> {
    let control = control(cancel);
    let populated = reserved.populate(workers, &control);
    let (ram, _) = populated.map_err(|failed| failed.error)?;
    let stained = ram.stain(workers, STAIN, &control);
    Ok(stained.map_err(|failed| failed.error)?)
}

/// Hugepages of which no byte is zero are the next to be taken, without a pool.
pub(super) fn dirty_fresh(bytes: u64, pages: Pages, cancel: &Cancel) -> Result<(), Failure> {
    let (ram, workers) = reserve_fresh(bytes, pages)?;
    stained(ram, &workers, cancel).map(drop)
}

/// Memory as it is asked for, mapped, and workers for it.
fn reserve(
    request: &Request,
    leases: Vec<Lease>,
) -> Result<(GuestRam<Reserved>, Workers), Failure> {
    let plan = plan(&Host::probe(), request)?;
    let workers = Workers::start(plan.workers())?;
    let ram = GuestRam::reserve_with(&plan, leases.into_iter().map(Some).collect())?;
    Ok((ram, workers))
}

/// Fresh memory, mapped.
pub(super) fn reserve_fresh(
    bytes: u64,
    pages: Pages,
) -> Result<(GuestRam<Reserved>, Workers), Failure> {
    reserve(&pages.request(bytes), Vec::new())
}

impl Drop for Segments {
    fn drop(&mut self) {
        destroy(self.pool.take());
    }
}

fn destroy(pool: Option<Pool>) {
    // What is left of one on a mount of this process's own is gone with it.
    let left = pool.map(Pool::destroy);
    if let Some(Ok(destroyed)) = left {
        debug_assert!(destroyed.left.is_empty(), "{destroyed:?}");
    }
}

fn control(cancel: &Cancel) -> Control<'_> {
    Control {
        cancel: Some(cancel),
        ..Control::default()
    }
}

/// As long as it can be: a power of two, so that none lies across the hole below 4 GiB.
fn segment(bytes: u64, page: PageSize) -> Option<PageBytes> {
    let largest = 1_u64 << bytes.trailing_zeros().min(63);
    PageBytes::new(largest.min(SEGMENT.max(page.bytes())), page)
}

/// The fastest uncached method of those tried, or any that this CPU has.
pub(super) fn fastest_uncached(trials: &[Trial]) -> Option<Method> {
    let uncached = |method: &Method| method.stores() == Stores::Uncached;
    let tried = trials.iter().filter(|trial| uncached(&trial.method));
    let best = tried.max_by(|a, b| a.gbps().total_cmp(&b.gbps()));
    best.map(|trial| trial.method)
        .or_else(|| Method::available().find(uncached))
}

/// The kernel's own stores: a string instruction for each base page, where the CPU has it.
pub(super) fn kernels_stores() -> Method {
    Method::named("rep-stosb").unwrap_or_else(|_| Method::cached())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use prezero_testkit::{Hugepages, PrivateMount};

    use super::*;

    const PAGES: Pages = Pages {
        page: PageSize::HUGE_2M,
        node: None,
    };

    /// The state that the names of all segments say, and whether every byte in them is `byte`.
    fn segments(pool: &Path, byte: u8) -> (Vec<String>, bool) {
        let dirs = fs::read_dir(pool).expect("a pool").flatten();
        let files = dirs.flat_map(|dir| fs::read_dir(dir.path()).expect("a node").flatten());
        let (mut states, mut alike) = (Vec::new(), true);
        for file in files {
            let name = file.file_name().to_string_lossy().into_owned();
            states.extend(
                ["clean", "dirty"]
                    .iter()
                    .find(|state| name.contains(*state)),
            );
            let bytes = fs::read(file.path()).expect("a segment");
            alike &= bytes.iter().all(|found| *found == byte);
        }
        (states.into_iter().map(str::to_owned).collect(), alike)
    }

    #[test]
    fn memory_is_what_the_next_row_needs_and_back_afterwards() {
        let Some(pages) = Hugepages::exactly(2 << 20, 6) else {
            return;
        };
        let Some(mount) = PrivateMount::hugetlbfs(2 << 20) else {
            return;
        };
        let (pool, cancel) = (mount.path().join("pool"), Cancel::new());
        let made = Segments::make(&pool, 12 << 20, PAGES, &cancel);
        let mut memory = made.unwrap_or_else(|failure| panic!("{}", failure.message));
        let all = |state: &str| vec![state.to_owned(); 3];
        assert!(memory.is_clean());
        assert_eq!(segments(&pool, 0), (all("clean"), true));
        for _ in 0..2 {
            assert!(memory.dirty(&cancel).is_ok() && !memory.is_clean());
            assert_eq!(segments(&pool, STAIN), (all("dirty"), true));
        }
        drop(memory);
        assert!(!pool.exists());
        pages.assert_clean();
    }

    #[test]
    fn segments_divide_the_memory_and_lie_across_no_hole() {
        let segment = |bytes: u64, page| segment(bytes, page).map(PageBytes::bytes);
        for (bytes, wanted) in [
            (64 << 20, 64 << 20),
            (1 << 30, 1 << 30),
            (1536 << 20, 512 << 20),
            (1550 << 30, 1 << 30),
            (6 << 20, 2 << 20),
        ] {
            assert_eq!(segment(bytes, PageSize::HUGE_2M), Some(wanted));
            assert_eq!(bytes % wanted, 0);
        }
        assert_eq!(segment(3 << 30, PageSize::HUGE_1G), Some(1 << 30));
        assert_eq!(segment(3 << 20, PageSize::HUGE_2M), None);
    }

    #[test]
    fn the_uncached_method_is_the_fastest_of_its_kind() {
        let cached = Method::cached();
        let uncached = |method: &Method| method.stores() == Stores::Uncached;
        let methods: Vec<Method> = Method::available().filter(uncached).collect();
        let trial = |method: Method, millis| Trial {
            method,
            bytes: 1 << 20,
            time: Duration::from_millis(millis),
        };
        let mut trials = vec![trial(cached, 1)];
        trials.extend(
            methods
                .iter()
                .rev()
                .zip([20, 10, 30])
                .map(|(m, t)| trial(*m, t)),
        );
        let wanted = methods.iter().rev().nth(1).or(methods.first()).copied();
        assert_eq!(fastest_uncached(&trials), wanted);
        assert_eq!(fastest_uncached(&[]), methods.first().copied());
    }
}
