//! What is typed for the guest: read, told from the monitor's own keys, and kept until the serial port takes it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::devices::Devices;
use crate::sys;

/// Begins the monitor's own keys, as QEMU's: Ctrl-A.
const ESCAPE: u8 = 1;
/// A terminal's keys that are kept for a guest that does not take them; later ones are lost.
const TYPED_MAX: usize = 4096;

/// Where a guest's input comes from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Read until its end: with `escape` at any time, otherwise when the guest has room for what there is.
    pub fd: BorrowedFd<'a>,
    /// Whether Ctrl-A is the monitor's, as on a terminal in raw mode: Ctrl-A x ends the machine, Ctrl-A twice is one
    /// Ctrl-A for the guest.
    pub escape: bool,
}

/// The near end of the serial line.
#[derive(Debug)]
pub(super) struct Typing<'a> {
    input: Option<Input<'a>>,
    keys: Keys,
    /// Read, and not taken by the guest yet.
    typed: Vec<u8>,
}

impl<'a> Typing<'a> {
    pub(super) fn new(input: Option<Input<'a>>) -> Typing<'a> {
        Typing {
            input,
            keys: Keys::default(),
            typed: Vec::new(),
        }
    }

    /// Gives the guest what it takes. Returns what to read from next, if anything: the keys of a terminal always,
    /// because the monitor's may be among them; a file or a pipe once the guest has taken everything.
    pub(super) fn hand_over(&mut self, devices: &Devices) -> Option<RawFd> {
        if !self.typed.is_empty() {
            let taken = devices.input(&self.typed);
            self.typed.drain(..taken);
        }
        let ready = self.typed.is_empty() && devices.input_room() > 0;
        let input = self.input.filter(|input| input.escape || ready)?;
        Some(input.fd.as_raw_fd())
    }

    /// Reads what there is. Returns whether the machine is to end.
    pub(super) fn read(&mut self) -> bool {
        let Some(input) = self.input else {
            return false;
        };
        let mut bytes = [0; 64];
        match sys::read(input.fd, &mut bytes) {
            Ok(0) => self.input = None,
            Ok(len) => {
                let (typed, ends) = self.keys.sort(&bytes[..len], input.escape);
                let room = TYPED_MAX - self.typed.len();
                self.typed.extend(typed.iter().take(room));
                return ends;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.input = None,
        }
        false
    }
}

/// Tells the guest's keys from the monitor's.
#[derive(Debug, Default)]
struct Keys {
    escaped: bool,
}

impl Keys {
    /// The guest's, and whether the machine is to end.
    fn sort(&mut self, bytes: &[u8], escape: bool) -> (Vec<u8>, bool) {
        if !escape {
            return (bytes.to_vec(), false);
        }
        let mut typed = Vec::new();
        for &byte in bytes {
            match (std::mem::take(&mut self.escaped), byte) {
                (false, ESCAPE) => self.escaped = true,
                (true, b'x' | b'X') => return (typed, true),
                (true, ESCAPE) | (false, _) => typed.push(byte),
                // Like QEMU's, other keys of the monitor do nothing.
                (true, _) => {}
            }
        }
        (typed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_escape_key_is_the_monitors() {
        let mut keys = Keys::default();
        assert_eq!(keys.sort(b"a\x03\x01", true), (b"a\x03".to_vec(), false));
        assert_eq!(keys.sort(b"\x01b\x01cd", true), (b"\x01bd".to_vec(), false));
        assert_eq!(keys.sort(b"x\x01xy", true), (b"x".to_vec(), true));
        assert_eq!(
            Keys::default().sort(b"\x01x", false),
            (b"\x01x".to_vec(), false)
        );
    }
}
