//! The threads that work on guest memory: one rayon pool per node, every thread pinned to one CPU.
//!
//! All threads exist before any of them touches memory, because making a thread maps its stack, and
//! a thread that maps waits for (and holds up) every thread that faults: both want the process's
//! mmap lock. One barrier spans all nodes. Dropping [`Workers`] joins the threads.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::class::Class;
use crate::plan::WorkerPlan;
use crate::sys;

/// What a worker thread runs.
pub type ThreadBody = Box<dyn FnOnce() + Send>;

/// Makes a thread from its builder (which has the name) and body. An embedder's spawner may wrap
/// the body, to install its seccomp filter for instance, but has to run it.
pub type Spawner<'a> = &'a dyn Fn(Builder, ThreadBody) -> io::Result<JoinHandle<()>>;

/// Worker threads could not be made.
#[derive(Debug, thiserror::Error)]
#[error("Could not start worker thread {n} of {total}")]
pub struct StartError {
    /// Threads running by then, plus one.
    n: usize,
    /// Threads planned.
    total: usize,
    #[source]
    source: io::Error,
}

impl StartError {
    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self.source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => Class::Host,
            _ => Class::Shortage,
        }
    }

    /// What to type.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        Some(
            "--threads 1; or raise what is short: ulimit -u, ulimit -v, pids.max of the cgroup"
                .to_owned(),
        )
    }
}

/// Pinned worker threads, waiting for work. Joined on drop.
pub struct Workers {
    pools: Vec<NodePool>,
    threads: Vec<JoinHandle<()>>,
    /// Held by a call while its workers meet at its barrier: two calls whose jobs reached the pools in
    /// different orders would wait for each other for ever.
    turn: Mutex<()>,
}

struct NodePool {
    node: u32,
    /// Taken on drop, before the threads are joined.
    pool: Option<rayon::ThreadPool>,
    workers: Arc<Vec<WorkerState>>,
}

/// One worker: what was planned, and what became of the pin.
pub(crate) struct WorkerState {
    pub(crate) plan: WorkerPlan,
    pinned: OnceLock<bool>,
}

impl WorkerState {
    /// Whether the thread was found to be allowed on its CPU only, after asking for it.
    pub(crate) fn pinned(&self) -> bool {
        self.pinned.get().copied().unwrap_or(false)
    }

    fn pin(&self) {
        let pinned = self.plan.cpu().is_some_and(|cpu| {
            // A refused pin costs speed, not correctness; the report says so.
            let _ = sys::pin_this_thread(cpu);
            sys::affinity().is_ok_and(|cpus| cpus.len() == 1 && cpus.contains(cpu))
        });
        let _ = self.pinned.set(pinned);
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self
            .pools
            .iter()
            .map(|pool| (pool.node, pool.workers.len()));
        f.debug_map().entries(nodes).finish()
    }
}

impl Workers {
    /// Starts the planned threads ([`crate::Plan::workers`]).
    ///
    /// # Errors
    ///
    /// If a thread cannot be made; those that were are joined first.
    pub fn start(plan: &[WorkerPlan]) -> Result<Self, StartError> {
        Self::start_with(plan, &|builder, body| builder.spawn(body))
    }

    /// [`Workers::start`] with the embedder's own way of making threads.
    ///
    /// # Errors
    ///
    /// If a thread cannot be made; those that were are joined first.
    pub fn start_with(plan: &[WorkerPlan], spawn: Spawner<'_>) -> Result<Self, StartError> {
        let mut started = Self {
            pools: Vec::new(),
            threads: Vec::with_capacity(plan.len()),
            turn: Mutex::new(()),
        };
        let mut nodes: Vec<u32> = plan.iter().map(WorkerPlan::node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            let of_node = plan.iter().filter(|worker| worker.node() == node);
            let workers: Vec<WorkerState> = of_node
                .take(rayon::max_num_threads())
                .map(|worker| WorkerState {
                    plan: *worker,
                    pinned: OnceLock::new(),
                })
                .collect();
            let workers = Arc::new(workers);
            let threads = &mut started.threads;
            let built = rayon::ThreadPoolBuilder::new()
                .num_threads(workers.len())
                .spawn_handler(|thread| {
                    let name = format!("prezero-n{node}-{}", thread.index());
                    let workers = Arc::clone(&workers);
                    let body = Box::new(move || {
                        workers[thread.index()].pin();
                        thread.run();
                    });
                    threads.push(spawn(Builder::new().name(name), body)?);
                    Ok(())
                })
                .build();
            let pool = built.map_err(|error| StartError {
                n: started.threads.len() + 1,
                total: plan.len(),
                source: io_error(&error),
            })?;
            started.pools.push(NodePool {
                node,
                pool: Some(pool),
                workers,
            });
        }
        Ok(started)
    }

    /// The number of threads.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pools.iter().map(|pool| pool.workers.len()).sum()
    }

    /// The number of threads that work on a node's memory.
    pub(crate) fn count_on(&self, node: u32) -> u64 {
        let of_node = self.pools.iter().filter(|pool| pool.node == node);
        of_node.map(|pool| pool.workers.len() as u64).sum()
    }

    /// The nodes that have workers.
    pub fn nodes(&self) -> impl Iterator<Item = u32> {
        self.pools.iter().map(|pool| pool.node)
    }

    /// Runs `job` once on every worker, all of them starting together, while the calling thread runs
    /// `meanwhile`. Results are in worker order; a job that panicked has none.
    pub(crate) fn run<R: Send>(
        &self,
        job: impl Fn(&WorkerState) -> R + Sync,
        meanwhile: impl FnOnce(&Running),
    ) -> Vec<Option<R>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let running = Running::new(self.count());
        let barrier = Barrier::new(self.count());
        let results: Vec<Mutex<Option<R>>> = (0..self.count()).map(|_| Mutex::new(None)).collect();
        let on_worker = |first: usize, pool: &NodePool, index: usize| {
            let _finished = running.finish_on_drop();
            barrier.wait();
            let worker = &pool.workers[index];
            let result = catch_unwind(AssertUnwindSafe(|| job(worker))).ok();
            *results[first + index]
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = result;
        };
        let mut meanwhile = Some(meanwhile);
        broadcast(&self.pools, 0, &on_worker, &mut || {
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile(&running);
            }
        });
        let results = results.into_iter();
        results
            .map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }
}

/// The spawner's error behind rayon's, which shows it but does not hand it out.
fn io_error(error: &rayon::ThreadPoolBuildError) -> io::Error {
    let source =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    match source.and_then(io::Error::raw_os_error) {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(error.to_string()),
    }
}

/// Gives every pool its jobs, then runs `last` on the calling thread; returns when all are done.
fn broadcast<'a, J>(pools: &'a [NodePool], first: usize, job: &'a J, last: &mut dyn FnMut())
where
    J: Fn(usize, &NodePool, usize) + Sync,
{
    let Some((pool, rest)) = pools.split_first() else {
        return last();
    };
    let next = first + pool.workers.len();
    match &pool.pool {
        Some(threads) => threads.in_place_scope(|scope| {
            scope.spawn_broadcast(move |_, context| job(first, pool, context.index()));
            broadcast(rest, next, job, last);
        }),
        None => broadcast(rest, next, job, last),
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Dropping a rayon pool only asks its threads to end.
        for pool in &mut self.pools {
            pool.pool = None;
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// How many workers are still at their job.
pub(crate) struct Running {
    left: Mutex<usize>,
    changed: Condvar,
}

impl Running {
    fn new(workers: usize) -> Self {
        Self {
            left: Mutex::new(workers),
            changed: Condvar::new(),
        }
    }

    /// Waits until all workers are done, at most `timeout`; true if they are.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(left, timeout, |left| *left > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }

    fn finish_on_drop(&self) -> Finish<'_> {
        Finish(self)
    }
}

/// Counts a worker out, also when its job panics.
struct Finish<'a>(&'a Running);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        *self.0.left.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn plan(nodes: &[u32]) -> Vec<WorkerPlan> {
        let cpu = sys::affinity().unwrap().first();
        nodes
            .iter()
            .map(|&node| WorkerPlan {
                node,
                cpu,
                remote: false,
            })
            .collect()
    }

    #[test]
    fn every_worker_of_every_node_runs_once_and_is_pinned() {
        let workers = Workers::start(&plan(&[0, 0, 1, 3])).unwrap();
        let results = workers.run(|worker| (worker.plan.node(), worker.pinned()), |_| ());
        let results: Vec<_> = results.into_iter().flatten().collect();
        assert_eq!(results, [(0, true), (0, true), (1, true), (3, true)]);
    }

    #[test]
    fn all_workers_start_behind_one_barrier() {
        let workers = Workers::start(&plan(&[0, 1, 1])).unwrap();
        let entered = AtomicUsize::new(0);
        let met: Vec<_> = workers.run(
            |_| {
                entered.fetch_add(1, Ordering::SeqCst);
                let start = std::time::Instant::now();
                while entered.load(Ordering::SeqCst) < 3 && start.elapsed().as_secs() < 10 {
                    std::thread::yield_now();
                }
                entered.load(Ordering::SeqCst)
            },
            |running| while !running.wait(Duration::from_millis(1)) {},
        );
        assert_eq!(met, [Some(3); 3]);
    }

    #[test]
    fn two_callers_take_turns() {
        let workers = Workers::start(&plan(&[0, 1])).unwrap();
        let call = || {
            for _ in 0..500 {
                let done = workers.run(|_| (), |running| while !running.wait(Duration::MAX) {});
                assert_eq!(done.len(), 2);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(call);
            scope.spawn(call);
        });
    }

    #[test]
    fn a_job_that_panics_is_missing_and_nothing_hangs() {
        let workers = Workers::start(&plan(&[0, 0])).unwrap();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let first = AtomicUsize::new(0);
        let results = workers.run(
            |_| assert!(first.fetch_add(1, Ordering::SeqCst) == 0),
            |running| while !running.wait(Duration::from_millis(1)) {},
        );
        std::panic::set_hook(hook);
        assert_eq!(results.iter().flatten().count(), 1);
    }

    #[test]
    fn drop_joins_the_threads() {
        struct Gone(Arc<AtomicUsize>);
        impl Drop for Gone {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let gone = Arc::new(AtomicUsize::new(0));
        let spawn = |builder: Builder, body: ThreadBody| {
            let gone = Gone(Arc::clone(&gone));
            builder.spawn(move || {
                body();
                std::thread::sleep(Duration::from_millis(20));
                drop(gone);
            })
        };
        let workers = Workers::start_with(&plan(&[0, 0]), &spawn).unwrap();
        drop(workers);
        assert_eq!(gone.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_spawner_that_refuses_is_an_error_and_the_others_are_joined() {
        let made = AtomicUsize::new(0);
        let gone = Arc::new(AtomicUsize::new(0));
        let spawn = |builder: Builder, body: ThreadBody| {
            if made.fetch_add(1, Ordering::SeqCst) == 2 {
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            let gone = Arc::clone(&gone);
            builder.spawn(move || {
                body();
                gone.fetch_add(1, Ordering::SeqCst);
            })
        };
        let error = Workers::start_with(&plan(&[0, 0, 0]), &spawn).unwrap_err();
        assert_eq!(error.to_string(), "Could not start worker thread 3 of 3");
        assert_eq!(gone.load(Ordering::SeqCst), 2);
    }
}
