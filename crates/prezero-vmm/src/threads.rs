//! One thread per vCPU, and how to get it out of the guest.
//!
//! To stop, the owner sets `stop` and sends each vCPU thread a signal that the thread blocks and KVM_RUN lets through
//! (KVM_SET_SIGNAL_MASK). Sent a moment before KVM_RUN, it stays pending and ends KVM_RUN at once, so no wake-up is
//! lost; and as the thread itself never unblocks it, no handler is needed. A thread that does not block it yet must
//! not be sent it: it would kill the process. So a thread enters `ready` under a lock, after blocking it and unless
//! `stop` is set by then, and only threads in `ready` are signalled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::GuestError;
use crate::sys;

/// A vCPU thread calls KVM and little else.
const STACK_BYTES: usize = 256 << 10;

/// How the threads are told to stop.
#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    ready: Mutex<Vec<bool>>,
}

impl Shared {
    fn ready(&self) -> MutexGuard<'_, Vec<bool>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the calling thread, that of vCPU `cpu`, be kicked. Returns the signal mask that its KVM_RUN is to use.
    fn enter(&self, cpu: u32) -> Result<u64, GuestError> {
        let run_mask = sys::block_kick().map_err(|source| GuestError::Thread { cpu, source })?;
        let mut ready = self.ready();
        if self.stop.load(Ordering::SeqCst) {
            return Err(GuestError::Cancelled);
        }
        ready[cpu as usize] = true;
        Ok(run_mask)
    }
}

/// What the thread of a vCPU is given.
#[derive(Debug)]
pub(crate) struct VcpuThread<'a> {
    /// Which vCPU, counted from 0.
    pub(crate) cpu: u32,
    /// The signal mask of KVM_RUN.
    pub(crate) run_mask: u64,
    /// Set once the thread is to end; a kick then ends KVM_RUN.
    pub(crate) stop: &'a AtomicBool,
}

/// What the thread of each vCPU does: it returns what its vCPU came to.
pub(crate) trait VcpuBody<T>:
    Fn(&VcpuThread<'_>) -> Result<T, GuestError> + Send + Sync
{
}

impl<T, F: Fn(&VcpuThread<'_>) -> Result<T, GuestError> + Send + Sync> VcpuBody<T> for F {}

/// The running vCPUs. Dropping this stops them and joins their threads.
#[derive(Debug)]
pub(crate) struct VcpuThreads<T> {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    outcomes: Receiver<(u32, Result<T, GuestError>)>,
}

impl<T: Send + 'static> VcpuThreads<T> {
    /// Starts a thread for each of `count` vCPUs.
    pub(crate) fn start(
        count: u32,
        body: impl VcpuBody<T> + 'static,
    ) -> Result<VcpuThreads<T>, GuestError> {
        let (sender, outcomes) = channel();
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            ready: Mutex::new(vec![false; count as usize]),
        });
        let body = Arc::new(body);
        // Owned from the first thread on, so that a failure half-way stops those that run.
        let mut all = VcpuThreads {
            shared,
            threads: Vec::with_capacity(count as usize),
            outcomes,
        };
        for cpu in 0..count {
            let (shared, body) = (Arc::clone(&all.shared), Arc::clone(&body));
            let thread = spawn(shared, cpu, body, sender.clone());
            all.threads
                .push(thread.map_err(|source| GuestError::Thread { cpu, source })?);
        }
        Ok(all)
    }

    /// The next vCPU to end, if one does within `timeout`.
    pub(crate) fn next_ended(&self, timeout: Duration) -> Option<(u32, Result<T, GuestError>)> {
        self.outcomes.recv_timeout(timeout).ok()
    }
}

fn spawn<T: Send + 'static>(
    shared: Arc<Shared>,
    cpu: u32,
    body: Arc<impl VcpuBody<T> + 'static>,
    sender: Sender<(u32, Result<T, GuestError>)>,
) -> std::io::Result<JoinHandle<()>> {
    let run = move || {
        let run_mask = shared.enter(cpu)?;
        body(&VcpuThread {
            cpu,
            run_mask,
            stop: &shared.stop,
        })
    };
    std::thread::Builder::new()
        .name(format!("prezero-vcpu{cpu}"))
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(run));
            // Nobody listens any more where the owner is stopping everything.
            let _ = sender.send((cpu, outcome.unwrap_or(Err(GuestError::Panicked { cpu }))));
        })
}

impl<T> Drop for VcpuThreads<T> {
    fn drop(&mut self) {
        {
            let ready = self.shared.ready();
            self.shared.stop.store(true, Ordering::SeqCst);
            self.threads
                .iter()
                .zip(ready.iter())
                .filter(|(_, ready)| **ready)
                .for_each(|(thread, _)| sys::kick(thread));
        }
        for thread in self.threads.drain(..) {
            // A panic has been caught and reported inside.
            let _ = thread.join();
        }
    }
}
