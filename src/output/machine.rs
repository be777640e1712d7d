//! The machine of a measurement for people: the little that explains its figures.

use std::io::{self, Write};

use crate::report::machine::MachineFacts;

/// Three lines.
pub(super) fn machine(out: &mut impl Write, machine: &MachineFacts) -> io::Result<()> {
    let cpu = match machine.cpu.as_str() {
        "" => "CPUs of an unknown model",
        model => model,
    };
    let cpus = match machine.cpus {
        1 => "1 CPU".to_owned(),
        cpus => format!("{cpus} CPUs"),
    };
    let microcode = machine.microcode.as_ref();
    let microcode = microcode.map_or(String::new(), |revision| format!(", microcode {revision}"));
    let guest = match machine.hypervisor {
        true => ", itself a virtual machine",
        false => "",
    };
    writeln!(out, "machine   {cpus}, {cpu}{microcode}{guest}")?;
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "unknown".to_owned());
    writeln!(
        out,
        "kernel    Linux {}, preemption {}, transparent hugepages {} (defrag {})",
        machine.kernel,
        machine.preempt,
        word(&machine.thp.enabled),
        word(&machine.thp.defrag)
    )?;
    let load =
        |load: Option<[f64; 3]>| load.map_or("?".to_owned(), |load| format!("{:.1}", load[0]));
    writeln!(
        out,
        "load      {} before, {} after (average of the last minute)",
        load(machine.load_before),
        load(machine.load_after)
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use prezero_host::Host;

    use super::*;
    use crate::measure::machine::{Load, Machine};

    #[test]
    fn a_machine_has_three_lines() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hosts");
        let root = fixtures.join("one-node");
        let mut facts = MachineFacts::new(&Host::read(&root), Machine::read(&root));
        facts.load_before = Some([0.25, 0.0, 0.0]);
        facts.set_load_after(Some(Load([1.5, 0.0, 0.0])));
        let mut out = Vec::new();
        machine(&mut out, &facts).expect("memory takes it");
        let wanted = "\
machine   2 CPUs, AMD EPYC 7763 64-Core Processor, microcode 0xa0011d5, itself a virtual machine
kernel    Linux 6.18.2, preemption dynamic, transparent hugepages madvise (defrag unknown)
load      0.2 before, 1.5 after (average of the last minute)
";
        assert_eq!(String::from_utf8(out).expect("UTF-8"), wanted);
    }
}
