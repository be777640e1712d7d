//! The devices behind the guest's ports. KVM has the interrupt controllers and the timer; what is here are a serial
//! port and the ways to end the machine. Everywhere else there is nothing, as on a bus without a device: reads are all
//! ones, writes are lost.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vm_superio::serial::SerialEvents;
use vm_superio::{Serial, Trigger};
use vmm_sys_util::eventfd::EventFd;

use super::console::Console;
use super::layout::{
    DEBUG_EXIT_PORT, I8042_COMMAND, I8042_DATA, PVPANIC_PORT, RESET_PORT, RESET_VALUE,
    S5_SLEEP_TYPE, SERIAL_PORT, SERIAL_PORTS, SLEEP_CONTROL_PORT, SLEEP_STATUS_PORT,
};
use super::report::LinuxEnd;

/// Written to the keyboard controller: pull the reset line.
const I8042_RESET: u8 = 0xfe;
/// Events of the panic device: "panicked", and "panicked, and a crash kernel takes over".
const PANICKED: u8 = 1;
const CRASH_LOADED: u8 = 2;
/// Bits of the sleep control register (ACPI 6.5, 4.8.3.7).
const SLEEP_ENABLE: u8 = 1 << 5;
const SLEEP_TYPE_AT: u8 = 2;

/// An interrupt that KVM raises when the descriptor is written to.
#[derive(Debug)]
pub(super) struct Interrupt(pub(super) EventFd);

impl Trigger for Interrupt {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.write(1)
    }
}

/// Wakes the monitor when the guest has read all of its input, for it to hand over more.
#[derive(Debug)]
pub(super) struct Wake(pub(super) EventFd);

impl SerialEvents for Wake {
    fn buffer_read(&self) {}
    fn out_byte(&self) {}
    fn tx_lost_byte(&self) {}

    fn in_buffer_empty(&self) {
        // Where it cannot be woken it looks by itself, a little later.
        let _ = self.0.write(1);
    }
}

/// Registers of the serial port, and the bits of them that decide whether input is welcome.
const LINE_STATUS: u8 = 5;
const INTERRUPT_ENABLE: u8 = 1;
const RECEIVED_DATA: u8 = 1;
const LINE_CONTROL: u8 = 3;
const DIVISOR_LATCH: u8 = 1 << 7;
const MODEM_CONTROL: u8 = 4;
const LOOPBACK: u8 = 1 << 4;
/// A guest without interrupts that asks so often in a row waits for input. One that writes asks once for each byte.
const POLLS: u32 = 100;

/// The serial port. Its output goes into a buffer, which is emptied into the console when the lock is free again.
#[derive(Debug)]
struct Port {
    serial: Serial<Interrupt, Wake, Vec<u8>>,
    /// How often the line status was read since the last write.
    polls: u32,
}

impl Port {
    /// How many bytes of input it has room for: none as long as the guest does not wait for any, by an interrupt or
    /// by asking again and again. What a driver finds when it starts it throws away (`serial8250_do_startup`), and what
    /// comes while the port talks to itself is lost.
    fn room(&mut self) -> usize {
        let latch = self.serial.read(LINE_CONTROL) & DIVISOR_LATCH != 0;
        let by_interrupt = !latch && self.serial.read(INTERRUPT_ENABLE) & RECEIVED_DATA != 0;
        let loopback = self.serial.read(MODEM_CONTROL) & LOOPBACK != 0;
        match !loopback && (by_interrupt || self.polls >= POLLS) {
            true => self.serial.fifo_capacity(),
            false => 0,
        }
    }
}

/// All devices of a machine, for all its vCPUs.
#[derive(Debug)]
pub(super) struct Devices {
    serial: Mutex<Port>,
    pub(super) console: Console,
}

impl Devices {
    pub(super) fn new(interrupt: Interrupt, wake: Wake, console: Console) -> Devices {
        Devices {
            serial: Mutex::new(Port {
                serial: Serial::with_events(interrupt, wake, Vec::new()),
                polls: 0,
            }),
            console,
        }
    }

    fn serial(&self) -> MutexGuard<'_, Port> {
        self.serial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes of input the guest would take now.
    pub(super) fn input_room(&self) -> usize {
        self.serial().room()
    }

    /// Input for the guest. Returns how many bytes of it were taken.
    pub(super) fn input(&self, bytes: &[u8]) -> usize {
        let mut port = self.serial();
        let len = port.room().min(bytes.len());
        // An interrupt that cannot be raised is seen by polling.
        let _ = port.serial.enqueue_raw_bytes(&bytes[..len]);
        len
    }

    /// A write of the guest to a port, or as many as there are bytes. Returns how the machine ends, if it does.
    pub(super) fn write(&self, port: u16, data: &[u8], stop: &AtomicBool) -> Option<LinuxEnd> {
        let byte = *data.first()?;
        match port {
            _ if is_serial(port) => {
                let written = {
                    let mut com1 = self.serial();
                    com1.polls = 0;
                    for &byte in data {
                        // A buffer takes everything, and an interrupt that cannot be raised is seen by polling.
                        let _ = com1.serial.write(offset(port), byte);
                    }
                    std::mem::take(com1.serial.writer_mut())
                };
                let found = !written.is_empty() && self.console.put(&written, stop);
                found.then_some(LinuxEnd::Until)
            }
            I8042_COMMAND if byte == I8042_RESET => Some(LinuxEnd::Reset),
            RESET_PORT if byte == RESET_VALUE => Some(LinuxEnd::Reset),
            SLEEP_CONTROL_PORT if byte == S5_SLEEP_TYPE << SLEEP_TYPE_AT | SLEEP_ENABLE => {
                Some(LinuxEnd::PowerOff)
            }
            PVPANIC_PORT if byte & PANICKED != 0 => Some(LinuxEnd::Panic),
            DEBUG_EXIT_PORT => Some(LinuxEnd::DebugExit(byte)),
            _ => None,
        }
    }

    /// A read of the guest from a port.
    pub(super) fn read(&self, port: u16, data: &mut [u8]) {
        data.fill(0xff);
        let Some(first) = data.first_mut() else {
            return;
        };
        match port {
            _ if is_serial(port) => {
                let mut com1 = self.serial();
                if offset(port) == LINE_STATUS {
                    com1.polls = com1.polls.saturating_add(1);
                }
                // More than one byte only where a string instruction reads one register again and again.
                data.iter_mut()
                    .for_each(|byte| *byte = com1.serial.read(offset(port)));
            }
            // Ready for a command, and no key was pressed.
            I8042_DATA | I8042_COMMAND => *first = 0,
            PVPANIC_PORT => *first = PANICKED | CRASH_LOADED,
            SLEEP_CONTROL_PORT | SLEEP_STATUS_PORT => *first = 0,
            _ => {}
        }
    }
}

fn is_serial(port: u16) -> bool {
    (SERIAL_PORT..SERIAL_PORT + SERIAL_PORTS).contains(&port)
}

fn offset(port: u16) -> u8 {
    u8::try_from(port - SERIAL_PORT).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::console::Until;
    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn devices(until: Option<&str>) -> (Devices, EventFd) {
        let (devices, [interrupt, _]) = devices_that_wake(until);
        (devices, interrupt)
    }

    /// And what its interrupt and its wish for more input are seen by.
    fn devices_that_wake(until: Option<&str>) -> (Devices, [EventFd; 2]) {
        let events = [(); 2].map(|()| EventFd::new(libc::EFD_NONBLOCK).expect("an eventfd"));
        let [interrupt, wake] = [0, 1].map(|n| events[n].try_clone().expect("its copy"));
        let until = until.map(|text| Until::new(text).expect("it can be found"));
        let console = Console::new(until);
        let devices = Devices::new(Interrupt(interrupt), Wake(wake), console);
        (devices, events)
    }

    #[test]
    fn each_way_to_end_is_a_port_and_a_value() {
        let (devices, _) = devices(None);
        for (port, value, end) in [
            (0x64, 0xfe, Some(LinuxEnd::Reset)),
            (0x64, 0xd1, None),
            (0x602, 1, Some(LinuxEnd::Reset)),
            (0x602, 0, None),
            (0x600, 0x34, Some(LinuxEnd::PowerOff)),
            (0x600, 0x14, None),
            (0x600, 0x20, None),
            (0x505, 1, Some(LinuxEnd::Panic)),
            (0x505, 2, None),
            (0xf4, 7, Some(LinuxEnd::DebugExit(7))),
            (0x80, 0xff, None),
        ] {
            assert_eq!(
                devices.write(port, &[value], &NEVER),
                end,
                "{port:#x} {value:#x}"
            );
        }
    }

    #[test]
    fn output_reaches_the_console_and_ends_the_machine_where_asked() {
        let (devices, _) = devices(Some("ready"));
        for byte in *b"is it read" {
            assert_eq!(devices.write(0x3f8, &[byte], &NEVER), None);
        }
        // A string instruction, such as `rep outsb`.
        assert_eq!(
            devices.write(0x3f8, b"? ready", &NEVER),
            Some(LinuxEnd::Until)
        );
        assert_eq!(devices.console.drain(), b"is it read? ready");
    }

    #[test]
    fn input_raises_the_interrupt_and_is_read() {
        let (devices, interrupt) = devices(None);
        devices.write(0x3f9, &[1], &NEVER);
        assert_eq!(devices.input_room(), 64);
        assert_eq!(devices.input(b"ab"), 2);
        assert_eq!(
            (interrupt.read().expect("raised"), devices.input_room()),
            (1, 62)
        );
        let mut read = [0; 2];
        devices.read(0x3f8, &mut read);
        assert_eq!(&read, b"ab");
    }

    #[test]
    fn a_guest_that_has_read_all_asks_for_more() {
        let (devices, [_, wake]) = devices_that_wake(None);
        devices.write(0x3f9, &[1], &NEVER);
        assert_eq!(devices.input(b"ab"), 2);
        let mut read = [0];
        devices.read(0x3f8, &mut read);
        assert!(wake.read().is_err(), "one is left");
        devices.read(0x3f8, &mut read);
        assert_eq!(wake.read().expect("woken"), 1);
    }

    #[test]
    fn input_waits_until_the_guest_does() {
        let (devices, _) = devices(None);
        let write = |port, byte| assert_eq!(devices.write(port, &[byte], &NEVER), None);
        let mut read = [0];
        // A driver that starts reads what there is, and so would lose it.
        assert_eq!((devices.input_room(), devices.input(b"a")), (0, 0));
        devices.read(0x3f8, &mut read);
        // It enables its interrupt, changes the speed behind the latch, and talks to itself.
        for (port, byte, room) in [
            (0x3f9, 1, 64),
            (0x3fb, 0x83, 0),
            (0x3f9, 1, 0),
            (0x3fb, 3, 64),
            (0x3fc, 0x10, 0),
            (0x3fc, 0, 64),
            (0x3f9, 2, 0),
        ] {
            write(port, byte);
            assert_eq!(devices.input_room(), room, "{port:#x} {byte:#x}");
        }
        // Without an interrupt, one that writes asks for each byte, and one that waits asks all the time.
        for _ in 0..2 * POLLS {
            devices.read(0x3fd, &mut read);
            write(0x3f8, b'-');
        }
        assert_eq!(devices.input(b"a"), 0);
        for _ in 0..POLLS {
            devices.read(0x3fd, &mut read);
        }
        assert_eq!(devices.input(&[b'a'; 65]), 64);
        assert_eq!(devices.input(b"b"), 0);
        devices.read(0x3f8, &mut read);
        assert_eq!((read, devices.input(b"bc")), (*b"a", 1));
    }

    #[test]
    fn where_there_is_no_device_reads_are_all_ones() {
        let (devices, _) = devices(None);
        let mut read = [0; 4];
        devices.read(0xcf8, &mut read);
        assert_eq!(read, [0xff; 4]);
        devices.read(0x64, &mut read[..1]);
        assert_eq!(read[0], 0);
        devices.read(0x505, &mut read[..1]);
        assert_eq!(read[0], 3);
    }
}
