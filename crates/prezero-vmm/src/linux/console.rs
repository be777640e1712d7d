//! What the guest writes to its serial port: when the first byte came, what to look for in it, and how it gets from
//! the vCPU that wrote it to whoever shows it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::BootError;

/// A guest that writes faster than its output is shown waits when so many bytes are due.
const DUE_MAX: usize = 64 << 10;
/// Longer lines are looked at in part, of which at least half is kept.
const LINE_MAX: usize = 4096;
/// How `vpanic`, kernel/panic.c, begins, at the most urgent level.
const PANIC: &[u8] = b"Kernel panic - not syncing";
/// How a time stamp ends (`print_prefix`, kernel/printk/printk.c).
const STAMP_END: &[u8] = b"] ";
/// How often a waiting vCPU looks whether it is to stop.
const TICK: Duration = Duration::from_millis(20);

/// Text that ends the machine when the guest has written it to its serial port. It is looked for within a line, byte by
/// byte and as the guest wrote it; the bytes that end a line are CR and LF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Until(String);

impl Until {
    /// The longest text, in bytes: so much of a line is always remembered.
    pub const MAX: usize = LINE_MAX / 2;

    /// This text.
    ///
    /// # Errors
    ///
    /// It would never be found: it is empty, longer than [`Until::MAX`], or goes on beyond the end of a line.
    pub fn new(text: &str) -> Result<Until, BootError> {
        let len = text.len();
        let why = match text.find(['\r', '\n']) {
            _ if len == 0 => "is empty".to_owned(),
            _ if len > Until::MAX => {
                format!("has {len} bytes, at most {} are compared", Until::MAX)
            }
            Some(at) => format!("has a line end after {at} bytes, lines are looked at one by one"),
            None => return Ok(Until(text.to_owned())),
        };
        Err(BootError::Until { why })
    }
}

/// When what was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) first_byte: Option<Instant>,
    pub(super) user_space: Option<Instant>,
    pub(super) until: Option<Instant>,
    /// Whether the kernel said that it panics, at the beginning of a line or after a time stamp; within a line a program
    /// may say so.
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
    until: Option<Until>,
    state: Mutex<State>,
    room: Condvar,
}

impl Console {
    /// Looks for the text `until`, if there is one.
    pub(super) fn new(until: Option<Until>) -> Console {
        Console {
            until,
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
        let until = self.until.as_ref().map(|until| until.0.as_bytes());
        for &byte in bytes {
            state.take(byte, until);
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
        self.seen.panicked |= says_panic(&self.line);
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

fn says_panic(line: &[u8]) -> bool {
    let before = line.strip_suffix(PANIC);
    before.is_some_and(|before| before.is_empty() || before.ends_with(STAMP_END))
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
        // However it is cut, and behind a prompt without an end, too.
        for said in [
            "\r\n[    1.5] Kernel panic - not syncing: VFS\r\n",
            "\r\nKernel panic - not syncing: VFS\r\n",
            "\r\n# [    1.5][   T1] Kernel panic - not syncing",
        ] {
            let console = Console::new(None);
            for byte in said.bytes() {
                assert!(!console.seen().panicked, "{said}");
                console.put(&[byte], &NEVER);
                if console.seen().panicked {
                    break;
                }
            }
            assert!(console.seen().panicked, "{said}");
        }
    }

    #[test]
    fn a_program_that_quotes_a_panic_is_none() {
        let console = Console::new(None);
        for said in [
            "grep: Kernel panic - not syncing\r\n",
            "'Kernel panic - not syncing'\r\n",
            "Kernel panic - not sync\r\n",
        ] {
            console.put(said.as_bytes(), &NEVER);
            assert!(!console.seen().panicked, "{said}");
        }
    }

    #[test]
    fn text_that_could_not_be_found_is_refused() {
        for (text, why) in [
            (String::new(), "is empty"),
            ("a".repeat(Until::MAX + 1), "has 2049 bytes, at most 2048"),
            ("ab\nc".to_owned(), "line end after 2 bytes"),
            ("\r".to_owned(), "line end after 0 bytes"),
        ] {
            let error = Until::new(&text).expect_err("never found");
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(error.class(), prezero_memory::Class::Usage);
            assert!(error.fix().is_some());
        }
    }

    #[test]
    fn the_longest_text_is_found_wherever_a_line_has_it() {
        let text = "x".repeat(Until::MAX - 1) + "y";
        for before in [0, 1, Until::MAX, LINE_MAX - 1, LINE_MAX, LINE_MAX + 1] {
            let console = Console::new(Until::new(&text).ok());
            console.put(&vec![b'-'; before], &NEVER);
            console.drain();
            assert!(console.put(text.as_bytes(), &NEVER), "after {before} bytes");
        }
    }

    #[test]
    fn text_is_found_wherever_it_is_cut() {
        let console = Console::new(Until::new("login: ").ok());
        assert!(!console.put(b"\r\nhost lo", &NEVER));
        assert!(!console.put(b"gin:", &NEVER));
        assert!(console.put(b" ", &NEVER));
        assert!(console.put(b"x", &NEVER));
        assert_eq!(console.drain(), b"\r\nhost login: x");
        assert_eq!(console.drain(), b"");
    }

    #[test]
    fn text_is_found_at_the_end_of_a_line_without_end() {
        let console = Console::new(Until::new("end").ok());
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
