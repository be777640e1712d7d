//! One thread per vCPU, and how to get it out of the guest.
//!
//! To stop, the owner sets `stop` and sends each vCPU thread a signal that the thread blocks and KVM_RUN lets through
//! (KVM_SET_SIGNAL_MASK). Sent a moment before KVM_RUN, it stays pending and ends KVM_RUN at once, so no wake-up is
//! lost; and as the thread itself never unblocks it, no handler is needed. A thread that does not block it yet must
//! not be sent it: it would kill the process. So a thread enters `ready` under a lock, after blocking it and unless
//! `stop` is set by then, and only threads in `ready` are signalled.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::GuestError;
use crate::probe::code::{PORT_ALIVE, PORT_DONE, PORT_PROGRESS};
use crate::slots::PAGE;
use crate::sys;
use crate::vcpu::{Vcpu, VcpuStart};
use crate::vm::Vm;

/// A vCPU thread calls KVM and little else.
const STACK_BYTES: usize = 256 << 10;

/// When a vCPU spoke for the first time and for the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) alive: Instant,
    pub(crate) done: Instant,
}

/// How a vCPU ended.
pub(crate) type Outcome = Result<Lifetime, GuestError>;

/// What a vCPU tells while it runs; a cache line of its own, as each is written by another CPU.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Pulse {
    /// Port writes so far.
    beats: AtomicU64,
    /// Bytes scanned so far.
    scanned: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    ready: Mutex<Vec<bool>>,
    pulses: Vec<Pulse>,
}

impl Shared {
    fn ready(&self) -> MutexGuard<'_, Vec<bool>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs vCPU `cpu` to its end, in its own thread.
    fn run(&self, vm: &Vm, cpu: u32, start: &VcpuStart) -> Outcome {
        let index = cpu as usize;
        let run_mask = sys::block_kick().map_err(|source| GuestError::Thread { cpu, source })?;
        {
            let mut ready = self.ready();
            if self.stop.load(Ordering::SeqCst) {
                return Err(GuestError::Cancelled);
            }
            ready[index] = true;
        }
        let mut vcpu = Vcpu::create(vm, cpu, start, run_mask)?;
        let pulse = &self.pulses[index];
        let mut alive = None;
        let (alive, done) = vcpu
            .run(&self.stop, |port, value| {
                let now = Instant::now();
                pulse.beats.fetch_add(1, Ordering::Relaxed);
                match (port, alive) {
                    (PORT_ALIVE, None) => alive = Some(now),
                    (PORT_PROGRESS, Some(_)) => {
                        pulse
                            .scanned
                            .fetch_add(u64::from(value) * PAGE, Ordering::Relaxed);
                    }
                    (PORT_DONE, Some(alive)) => return ControlFlow::Break(Ok((alive, now))),
                    _ => return ControlFlow::Break(Err(port)),
                }
                ControlFlow::Continue(())
            })?
            .map_err(|port| GuestError::UnexpectedExit {
                cpu,
                exit: format!("write to port {port:#x} out of turn"),
                rip: 0,
            })?;
        Ok(Lifetime { alive, done })
    }
}

/// The running vCPUs. Dropping this stops them, joins their threads and closes their descriptors.
#[derive(Debug)]
pub(crate) struct VcpuThreads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    outcomes: Receiver<(u32, Outcome)>,
}

impl VcpuThreads {
    /// Starts one thread per element of `starts`; vCPU numbers are its indices.
    pub(crate) fn start(vm: &Vm, starts: Vec<VcpuStart>) -> Result<VcpuThreads, GuestError> {
        let (sender, outcomes) = channel();
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            ready: Mutex::new(vec![false; starts.len()]),
            pulses: starts.iter().map(|_| Pulse::default()).collect(),
        });
        // Owned from the first thread on, so that a failure half-way stops those that run.
        let mut all = VcpuThreads {
            shared,
            threads: Vec::with_capacity(starts.len()),
            outcomes,
        };
        for (cpu, start) in (0..).zip(starts) {
            let thread = spawn(
                Arc::clone(&all.shared),
                vm.clone(),
                cpu,
                start,
                sender.clone(),
            );
            all.threads
                .push(thread.map_err(|source| GuestError::Thread { cpu, source })?);
        }
        Ok(all)
    }

    /// The next vCPU to end, if one does within `timeout`.
    pub(crate) fn next_ended(&self, timeout: Duration) -> Option<(u32, Outcome)> {
        self.outcomes.recv_timeout(timeout).ok()
    }

    /// How many port writes each vCPU has made.
    pub(crate) fn beats(&self) -> impl Iterator<Item = u64> {
        self.shared
            .pulses
            .iter()
            .map(|p| p.beats.load(Ordering::Relaxed))
    }

    /// Bytes scanned by all vCPUs so far.
    pub(crate) fn scanned(&self) -> u64 {
        self.shared
            .pulses
            .iter()
            .map(|p| p.scanned.load(Ordering::Relaxed))
            .sum()
    }
}

fn spawn(
    shared: Arc<Shared>,
    vm: Vm,
    cpu: u32,
    start: VcpuStart,
    sender: Sender<(u32, Outcome)>,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("prezero-vcpu{cpu}"))
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| shared.run(&vm, cpu, &start)));
            // Nobody listens any more where the owner is stopping everything.
            let _ = sender.send((cpu, outcome.unwrap_or(Err(GuestError::Panicked { cpu }))));
        })
}

impl Drop for VcpuThreads {
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
