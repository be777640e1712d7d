//! Which scenarios share a boot.

use super::machine::{MACHINES, Machine};
use super::scenario::Scenario;

/// More scenarios than these are shared out over several boots, so that the machines that run at the
/// same time have work to the end and a machine that dies takes fewer results with it.
const SCENARIOS_PER_BOOT: usize = 8;

/// Scenarios that one machine runs, one after another.
pub(crate) struct Boot<'a> {
    pub(crate) machine: &'static Machine,
    /// For files: the machine's name and a number.
    pub(crate) name: String,
    pub(crate) scenarios: Vec<&'a Scenario>,
}

impl Boot<'_> {
    /// How long all of them may take.
    pub(crate) fn seconds(&self) -> u64 {
        self.scenarios.iter().map(|scenario| scenario.seconds).sum()
    }

    /// How long any one of them may take.
    pub(crate) fn longest(&self) -> u64 {
        let seconds = self.scenarios.iter().map(|scenario| scenario.seconds);
        seconds.max().unwrap_or_default()
    }
}

/// The boots that scenarios need, those that may take longest at the end.
pub(crate) fn boots<'a>(scenarios: &[&'a Scenario]) -> Vec<Boot<'a>> {
    let mut boots = Vec::new();
    for machine in &MACHINES {
        let own = scenarios.iter().copied();
        let own = own.filter(|scenario| scenario.machine.name == machine.name);
        let own: Vec<&Scenario> = own.collect();
        // As many in one as in another.
        let count = own.len().div_ceil(SCENARIOS_PER_BOOT).max(1);
        let size = own.len().div_ceil(count).max(1);
        boots.extend(own.chunks(size).enumerate().map(|(n, part)| Boot {
            machine,
            name: format!("{}-{n}", machine.name),
            scenarios: part.to_vec(),
        }));
    }
    boots.sort_by_key(Boot::seconds);
    boots
}

#[cfg(test)]
mod tests {
    use super::super::scenario::parse;
    use super::*;

    #[test]
    fn every_scenario_is_in_one_boot_of_its_machine() {
        let scenario = |n: usize, machine| {
            let script = format!("# machine: {machine}\n# proves: x\n");
            parse(&format!("s{n}"), &script).expect("valid")
        };
        let many = (0..2 * SCENARIOS_PER_BOOT + 1).map(|n| scenario(n, "two-nodes"));
        let scenarios: Vec<Scenario> = many.chain([scenario(99, "one-node")]).collect();
        let boots = boots(&scenarios.iter().collect::<Vec<_>>());
        let names: Vec<&str> = boots.iter().map(|boot| boot.name.as_str()).collect();
        assert_eq!(
            names,
            ["one-node-0", "two-nodes-2", "two-nodes-0", "two-nodes-1"]
        );
        let counts: Vec<usize> = boots.iter().map(|boot| boot.scenarios.len()).collect();
        assert_eq!(counts, [1, 5, 6, 6]);
        for boot in &boots {
            let own = |one: &&Scenario| one.machine.name == boot.machine.name;
            assert!(boot.scenarios.iter().all(own), "{}", boot.name);
        }
        let mut found: Vec<&str> = boots
            .iter()
            .flat_map(|boot| &boot.scenarios)
            .map(|one| one.name.as_str())
            .collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), scenarios.len());
    }
}
