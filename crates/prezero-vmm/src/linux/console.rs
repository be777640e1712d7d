//! What the guest writes to its serial port: when the first byte came, what to look for in it, and how it gets from
//! the vCPU that wrote it to whoever shows it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A guest that writes faster than its output is shown waits when so many bytes are due.
const DUE_MAX: usize = 64 << 10;
/// Longer lines are looked at in part.
const LINE_MAX: usize = 4096;
/// How often a waiting vCPU looks whether it is to stop.
const TICK: Duration = Duration::from_millis(20);

/// When what was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) first_byte: Option<Instant>,
    pub(super) user_space: Option<Instant>,
    pub(super) until: Option<Instant>,
    /// Whether the kernel said that it panics: `vpanic`, kernel/panic.c, at the most urgent level.
    pub(super) panicked: bool,
}

#[derive(Debug, Default)]
struct State {
    due: Vec<u8>,
    line: Vec<u8>,
    seen: Seen,
}

/// The far end of the serial port.
#[derive(Debug, Default)]
pub(super) struct Console {
    until: Option<Vec<u8>>,
    state: Mutex<State>,
    room: Condvar,
}

impl Console {
    /// Looks for the text `until`, if there is one.
    pub(super) fn new(until: Option<&str>) -> Console {
        Console {
            until: until.map(|text| text.as_bytes().to_vec()),
            ..Default::default()
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the guest wrote; waits while too much is due, unless `stop` is set. Returns whether the text that is
    /// looked for has come.
    pub(super) fn put(&self, bytes: &[u8], stop: &AtomicBool) -> bool {
        let mut state = self.state();
        while state.due.len() >= DUE_MAX && !stop.load(Ordering::SeqCst) {
            let waited = self.room.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.due.extend_from_slice(bytes);
        for &byte in bytes {
            state.take(byte, self.until.as_deref());
        }
        state.seen.until.is_some()
    }

    /// What is to be shown.
    pub(super) fn drain(&self) -> Vec<u8> {
        let due = std::mem::take(&mut self.state().due);
        self.room.notify_all();
        due
    }

    pub(super) fn seen(&self) -> Seen {
        self.state().seen
    }
}

impl State {
    fn take(&mut self, byte: u8, until: Option<&[u8]>) {
        let now = || Some(Instant::now());
        if self.seen.first_byte.is_none() {
            self.seen.first_byte = now();
        }
        if matches!(byte, b'\n' | b'\r') {
            self.line.clear();
            return;
        }
        if self.line.len() == LINE_MAX {
            // The end of it may be the beginning of what is looked for.
            self.line.drain(..LINE_MAX / 2);
        }
        self.line.push(byte);
        self.seen.panicked |= self.line.ends_with(b"Kernel panic - not syncing");
        if self.seen.until.is_none() && until.is_some_and(|until| self.line.ends_with(until)) {
            self.seen.until = now();
        }
        // `run_init_process`, init/main.c. It comes before the program runs, and only with a console of level 7.
        if self.seen.user_space.is_none()
            && self.line.ends_with(b" as init process")
            && contains(&self.line, b"Run ")
        {
            self.seen.user_space = now();
        }
    }
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    line.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_panic_is_known_by_what_the_kernel_says() {
        let console = Console::new(None);
        console.put(b"[    1.5] Kernel panic\r\n - not syncing", &NEVER);
        assert!(!console.seen().panicked);
        console.put(b"\r\n[    1.5] Kernel panic - not syncing: VFS\r\n", &NEVER);
        assert!(console.seen().panicked);
    }

    #[test]
    fn text_is_found_wherever_it_is_cut() {
        let console = Console::new(Some("login: "));
        assert!(!console.put(b"\r\nhost lo", &NEVER));
        assert!(!console.put(b"gin:", &NEVER));
        assert!(console.put(b" ", &NEVER));
        assert!(console.put(b"x", &NEVER));
        assert_eq!(console.drain(), b"\r\nhost login: x");
        assert_eq!(console.drain(), b"");
    }

    #[test]
    fn text_is_found_at_the_end_of_a_line_without_end() {
        let console = Console::new(Some("end"));
        for _ in 0..3 * LINE_MAX {
            assert!(!console.put(b"-", &NEVER));
            console.drain();
        }
        assert!(console.state().line.len() <= LINE_MAX);
        assert!(console.put(b"end", &NEVER));
    }

    #[test]
    fn user_space_is_where_the_kernel_says_so() {
        let console = Console::new(None);
        console.put(b"init process\n[    1.2] Run /init as init proces", &NEVER);
        assert!(console.seen().first_byte.is_some() && console.seen().user_space.is_none());
        console.put(b"s\n", &NEVER);
        let seen = console.seen();
        assert!(seen.user_space > seen.first_byte && seen.until.is_none());
        console.put(b"Run /bin/sh as init process\n", &NEVER);
        assert_eq!(console.seen(), seen);
    }

    #[test]
    fn a_guest_waits_until_its_output_is_shown_or_it_is_to_stop() {
        let console = Arc::new(Console::new(None));
        let stop = Arc::new(AtomicBool::new(false));
        let full = vec![b'-'; DUE_MAX];
        console.put(&full, &stop);
        let writer = {
            let (console, stop) = (Arc::clone(&console), Arc::clone(&stop));
            thread::spawn(move || {
                console.put(b"1", &stop);
                console.put(&vec![b'-'; DUE_MAX], &stop);
                console.put(b"2", &stop)
            })
        };
        thread::sleep(3 * TICK);
        assert_eq!(console.drain().len(), DUE_MAX);
        thread::sleep(3 * TICK);
        assert!(!writer.is_finished());
        stop.store(true, Ordering::SeqCst);
        writer.join().expect("ended");
        assert_eq!(console.drain().len(), DUE_MAX + 2);
    }
}
