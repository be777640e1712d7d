//! The machines of the lab, as QEMU's command line describes them.

/// A computer that QEMU emulates. Two of them run at a time, so each has at most 4 GiB.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    /// For `--list`.
    pub(crate) what: &'static str,
    /// In order of their numbers.
    nodes: &'static [Node],
    /// Pairs of nodes and how far they are apart; 20 where none is given, and 10 within a node.
    distances: &'static [(u32, u32, u32)],
    /// What the kernel's command line says about hugepage pools: those that every scenario starts with.
    pools: &'static str,
}

#[derive(Debug)]
struct Node {
    /// 0 for a node without memory.
    mib: u32,
    /// One number or a range, as `-numa cpu` takes it; empty for a node without CPUs.
    cpus: &'static str,
}

const fn node(mib: u32, cpus: &'static str) -> Node {
    Node { mib, cpus }
}

pub(crate) const MACHINES: [Machine; 5] = [
    Machine {
        name: "one-node",
        what: "one node with 2 CPUs and 256 pages of 2 MiB",
        nodes: &[node(1536, "0-1")],
        distances: &[],
        pools: "hugepagesz=2M hugepages=256",
    },
    Machine {
        name: "two-nodes",
        what: "two nodes with a CPU each; node 0 has 192 pages of 2 MiB, node 1 has 96",
        nodes: &[node(1536, "0"), node(1024, "1")],
        distances: &[],
        pools: "hugepagesz=2M hugepages=0:192,1:96",
    },
    Machine {
        name: "four-nodes",
        what: "nodes 0 and 1 have a CPU and memory, node 2 has a CPU and no memory, node 3 has no CPU and is near node 1; \
               64 pages of 2 MiB on each node with memory",
        nodes: &[
            node(1024, "0"),
            node(768, "1"),
            // Linux numbers nodes with CPUs first, whatever QEMU calls them.
            node(0, "2"),
            node(768, ""),
        ],
        distances: &[
            (0, 1, 21),
            (0, 2, 21),
            (0, 3, 31),
            (1, 2, 31),
            (1, 3, 12),
            (2, 3, 41),
        ],
        pools: "hugepagesz=2M hugepages=0:64,1:64,3:64",
    },
    Machine {
        name: "gigabyte-pages",
        what: "two nodes with a CPU each; node 0 has 96 pages of 2 MiB, node 1 has two pages of 1 GiB",
        // Node 1 begins at 1 GiB and reaches beyond 3 GiB, so that two whole pages fit; all is below the hole that QEMU
        // leaves from 3.5 GiB on.
        nodes: &[node(1024, "0"), node(2432, "1")],
        distances: &[],
        pools: "hugepagesz=2M hugepages=0:96 hugepagesz=1G hugepages=1:2",
    },
    Machine {
        name: "failing-memory",
        what: "one node with 2 CPUs and 96 pages of 2 MiB, for a scenario that poisons some: they stay poisoned",
        nodes: &[node(1024, "0-1")],
        distances: &[],
        pools: "hugepagesz=2M hugepages=96",
    },
];

impl Machine {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        MACHINES.iter().find(|machine| machine.name == name)
    }

    /// QEMU's options for CPUs, memory and nodes.
    pub(crate) fn options(&self) -> Vec<String> {
        let mib: u32 = self.nodes.iter().map(|node| node.mib).sum();
        let cpus: u32 = self.nodes.iter().map(Node::cpu_count).sum();
        let mut options = vec![
            "-m".to_owned(),
            format!("{mib}M"),
            "-smp".to_owned(),
            cpus.to_string(),
        ];
        let mut add = |option: &str, value: String| options.extend([option.to_owned(), value]);
        for (id, node) in self.nodes.iter().enumerate() {
            let mut numa = format!("node,nodeid={id}");
            if node.mib > 0 {
                add(
                    "-object",
                    format!("memory-backend-ram,id=m{id},size={}M", node.mib),
                );
                numa.push_str(&format!(",memdev=m{id}"));
            }
            if !node.cpus.is_empty() {
                numa.push_str(&format!(",cpus={}", node.cpus));
            }
            add("-numa", numa);
        }
        for (from, to, distance) in self.distances {
            add("-numa", format!("dist,src={from},dst={to},val={distance}"));
        }
        options
    }

    /// The kernel's command line. A kernel that hangs panics, and the machine ends at a panic, because QEMU is told not to
    /// reboot. Without KASLR the kernel does not land in the middle of a gigabyte page now and then.
    pub(crate) fn kernel_arguments(&self) -> String {
        format!(
            "console=ttyS0 quiet nokaslr panic=-1 softlockup_panic=1 {}",
            self.pools
        )
    }
}

impl Node {
    fn cpu_count(&self) -> u32 {
        let number = |text: &str| text.parse::<u32>().unwrap_or(0);
        match self.cpus.split_once('-') {
            Some((first, last)) => number(last) - number(first) + 1,
            None => u32::from(!self.cpus.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_describe_nodes_without_cpus_and_without_memory() {
        let machine = Machine::named("four-nodes").expect("it is there");
        let options = machine.options().join(" ");
        for part in [
            "-m 2560M -smp 3",
            "-numa node,nodeid=2,cpus=2 ",
            "-numa node,nodeid=3,memdev=m3 ",
            "-numa dist,src=1,dst=3,val=12",
        ] {
            assert!(options.contains(part), "{part} is not in {options}");
        }
    }

    #[test]
    fn every_machine_leaves_room_for_another_beside_it() {
        for machine in &MACHINES {
            let mib: u32 = machine.nodes.iter().map(|node| node.mib).sum();
            assert!(mib <= 4096, "{} has {mib} MiB", machine.name);
        }
    }
}
