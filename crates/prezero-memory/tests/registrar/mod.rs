//! A registrar that writes down what it is asked, and refuses what a test wants refused.
#![allow(dead_code, reason = "not every test file wants refusals")]

use std::io;
use std::sync::{Arc, Mutex};

use prezero_memory::{SlotRange, SlotRegistrar};

use crate::mappings::mapped;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Added(SlotRange),
    /// With it, whether the whole range was still mapped for reading and writing.
    Removed {
        slot: u32,
        mapped: bool,
    },
}

/// Clones share the events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    events: Arc<Mutex<Vec<Event>>>,
    refused: Option<u32>,
    kept: Option<u32>,
    panics: bool,
}

impl Book {
    pub(crate) fn refusing_to_add(slot: u32) -> Self {
        Self {
            refused: Some(slot),
            ..Self::default()
        }
    }

    pub(crate) fn refusing_to_remove(slot: u32) -> Self {
        Self {
            kept: Some(slot),
            ..Self::default()
        }
    }

    /// Adds every slot, and panics when it is to remove one.
    pub(crate) fn panicking() -> Self {
        Self {
            panics: true,
            ..Self::default()
        }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().expect("no test panics inside").clone()
    }

    fn write(&self, event: Event) {
        self.events
            .lock()
            .expect("no test panics inside")
            .push(event);
    }

    fn is_mapped(&self, slot: u32) -> bool {
        let range = self.events().into_iter().find_map(|event| match event {
            Event::Added(range) if range.slot == slot => Some(range),
            _ => None,
        });
        let range = range.expect("only what was added is removed");
        let found = mapped(range.hva, range.len);
        let bytes: u64 = found
            .iter()
            .filter(|mapping| mapping.access.starts_with("rw-"))
            .map(|mapping| mapping.end.min(range.hva + range.len) - mapping.start.max(range.hva))
            .sum();
        bytes == range.len
    }
}

// SAFETY: nothing here makes memory visible to anybody.
unsafe impl SlotRegistrar for Book {
    type Error = io::Error;

    unsafe fn add(&self, range: &SlotRange) -> io::Result<()> {
        if self.refused == Some(range.slot) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        self.write(Event::Added(*range));
        Ok(())
    }

    fn remove(&self, range: &SlotRange) -> io::Result<()> {
        let slot = range.slot;
        assert!(!self.panics, "a registrar that panics");
        if self.kept == Some(slot) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mapped = self.is_mapped(slot);
        self.write(Event::Removed { slot, mapped });
        Ok(())
    }
}
