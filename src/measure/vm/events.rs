//! What Cloud Hypervisor writes to its event monitor: JSON objects, pretty-printed, with empty lines
//! between them, as they happen. A reader can see part of one.

use serde::Deserialize;

/// Something that happened.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Event {
    /// `vmm` for the monitor, `vm` for its machine.
    pub(super) source: String,
    pub(super) event: String,
}

/// All whole events of a stream so far. What is no event ends them, as does the middle of one.
pub(super) fn events(stream: &[u8]) -> Vec<Event> {
    let events = serde_json::Deserializer::from_slice(stream).into_iter();
    events.map_while(Result::ok).collect()
}

/// Whether the machine is made and its memory there: its virtual CPUs have been started.
pub(super) fn booted(stream: &[u8]) -> bool {
    let booted = |event: &Event| event.source == "vm" && event.event == "booted";
    events(stream).iter().any(booted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Cloud Hypervisor v53.0.0 wrote, from its start to a SIGTERM, with
    /// `--memory size=1G,hugepages=on,hugepage_size=2M,prefault=on --cpus boot=1 --serial off --console off`,
    /// the [kernel](super::super::stub_kernel) that does nothing and `--event-monitor path=FILE`.
    const STREAM: &[u8] =
        include_bytes!("../../../tests/fixtures/peers/cloud-hypervisor-events.json");

    #[test]
    fn every_event_of_a_stream_is_seen_in_its_order() {
        let events = events(STREAM);
        let names: Vec<(&str, &str)> = events
            .iter()
            .map(|event| (&*event.source, &*event.event))
            .collect();
        assert_eq!(
            names,
            [
                ("vmm", "starting"),
                ("vm", "booting"),
                ("vm", "booted"),
                ("vm", "shutdown"),
                ("vm", "deleted"),
                ("vmm", "shutdown"),
            ]
        );
    }

    #[test]
    fn it_is_booted_from_the_last_byte_of_that_event_on_and_not_before() {
        let text = std::str::from_utf8(STREAM).expect("UTF-8");
        let name = text.find("\"booted\"").expect("it booted");
        let end = name + text[name..].find("\n}").expect("its end") + 2;
        // Cut anywhere, also in the middle of an object, a number or a name.
        for cut in 0..=STREAM.len() {
            assert_eq!(booted(&STREAM[..cut]), cut >= end, "{cut} of {end}");
        }
    }

    #[test]
    fn an_event_of_that_name_from_elsewhere_is_another() {
        assert!(!booted(
            br#"{ "source": "vmm", "event": "booted", "properties": null }"#
        ));
        assert!(!booted(b"no JSON at all"));
    }
}
