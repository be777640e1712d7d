//! What machine it was and how it was set: figures of two machines, or of one that was set in two ways,
//! are not to be mixed up.

mod identity;
mod load;
mod watch;

use std::fs;
use std::path::Path;

pub(crate) use self::load::Load;
pub(crate) use self::watch::Watch;

/// What [`prezero_host::Host`] does not need to know: it decides how fast memory is, not where it goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    /// Of this installation, which survives a reboot and is copied with an image; hashed.
    pub(crate) id: Option<String>,
    /// Of this boot; hashed.
    pub(crate) boot: Option<String>,
    /// What `uname -v` prints: the build and its flags.
    pub(crate) kernel_build: Option<String>,
    /// Maker and name, as the firmware (or a hypervisor) tells them.
    pub(crate) product: Option<String>,
    /// The chosen words of `/sys/kernel/mm/transparent_hugepage`.
    pub(crate) thp_enabled: Option<String>,
    pub(crate) thp_defrag: Option<String>,
    /// Name and state of the CPU's vulnerabilities that it is affected by; some slow a system call down.
    pub(crate) mitigations: Vec<(String, String)>,
    /// The governors of the CPUs' frequencies.
    pub(crate) governor: Option<String>,
    /// Whether CPUs may be faster than their nominal frequency.
    pub(crate) turbo: Option<bool>,
    /// Whether a core has more than one CPU.
    pub(crate) smt: Option<bool>,
    /// Before the measurement.
    pub(crate) load: Option<Load>,
}

impl Machine {
    /// The facts below `root`, `/` for the running machine; what is not there is not known.
    pub(crate) fn read(root: &Path) -> Self {
        let text = |path: &str| text(root, path);
        let flag = |path: &str| match text(path)?.as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        let cpu = "sys/devices/system/cpu";
        let thp = "sys/kernel/mm/transparent_hugepage";
        let chosen = |path: String| text(&path).and_then(|text| chosen(&text).map(str::to_owned));
        let dmi = "sys/class/dmi/id";
        let product = ["sys_vendor", "product_name"].map(|name| text(&format!("{dmi}/{name}")));
        let product: Vec<String> = product.into_iter().flatten().collect();
        Self {
            id: identity::hashed("machine", text("etc/machine-id")),
            boot: identity::hashed("boot", text("proc/sys/kernel/random/boot_id")),
            kernel_build: text("proc/sys/kernel/version"),
            product: (!product.is_empty()).then(|| product.join(" ")),
            thp_enabled: chosen(format!("{thp}/enabled")),
            thp_defrag: chosen(format!("{thp}/defrag")),
            mitigations: mitigations(&root.join(cpu).join("vulnerabilities")),
            governor: governors(&root.join(cpu).join("cpufreq")),
            turbo: flag(&format!("{cpu}/cpufreq/boost"))
                .or_else(|| flag(&format!("{cpu}/intel_pstate/no_turbo")).map(|no| !no)),
            smt: flag(&format!("{cpu}/smt/active")),
            load: Load::read(root),
        }
    }
}

/// What is in a file, without the white space around it.
fn text(root: &Path, path: &str) -> Option<String> {
    trimmed(&root.join(path))
}

fn trimmed(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The word in brackets.
fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

/// The names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn mitigations(dir: &Path) -> Vec<(String, String)> {
    let states = names(dir).into_iter();
    let states = states.filter_map(|name| trimmed(&dir.join(&name)).map(|state| (name, state)));
    states
        .filter(|(_, state)| state != "Not affected")
        .collect()
}

/// Of all CPUs, each once.
fn governors(dir: &Path) -> Option<String> {
    let policies = names(dir)
        .into_iter()
        .filter(|name| name.starts_with("policy"));
    let mut governors: Vec<String> = policies
        .filter_map(|name| trimmed(&dir.join(name).join("scaling_governor")))
        .collect();
    governors.sort();
    governors.dedup();
    (!governors.is_empty()).then(|| governors.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary root directory with these files.
    pub(super) fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        dir
    }

    #[test]
    fn a_machine_is_read_below_its_root() {
        const CPU: &str = "sys/devices/system/cpu";
        let at = |path: &str| format!("{CPU}/{path}");
        let files = [
            (
                "etc/machine-id".to_owned(),
                "3d1219c7c4c5404aaa1f6d2a48adfda4\n",
            ),
            (
                "proc/sys/kernel/random/boot_id".to_owned(),
                "6f6b2d20-39a0-4c9b-8c57-4c1e2b5f3a11\n",
            ),
            (
                "proc/sys/kernel/version".to_owned(),
                "#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1\n",
            ),
            ("proc/loadavg".to_owned(), "0.50 0.25 0.10 1/200 7\n"),
            ("sys/class/dmi/id/sys_vendor".to_owned(), "Dell Inc.\n"),
            (
                "sys/class/dmi/id/product_name".to_owned(),
                "PowerEdge R6525\n",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
                "always [madvise] never\n",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/defrag".to_owned(),
                "always defer defer+madvise [madvise] never\n",
            ),
            (at("vulnerabilities/meltdown"), "Not affected\n"),
            (
                at("vulnerabilities/retbleed"),
                "Mitigation: untrained return thunk\n",
            ),
            (at("cpufreq/policy0/scaling_governor"), "performance\n"),
            (at("cpufreq/policy1/scaling_governor"), "powersave\n"),
            (at("cpufreq/policy2/scaling_governor"), "performance\n"),
            (at("intel_pstate/no_turbo"), "1\n"),
            (at("smt/active"), "0\n"),
        ];
        let dir = root(
            &files
                .iter()
                .map(|(path, text)| (path.as_str(), *text))
                .collect::<Vec<_>>(),
        );
        let machine = Machine::read(dir.path());
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            Machine {
                id: None,
                boot: None,
                ..machine.clone()
            },
            Machine {
                kernel_build: text("#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1"),
                product: text("Dell Inc. PowerEdge R6525"),
                thp_enabled: text("madvise"),
                thp_defrag: text("madvise"),
                mitigations: vec![(
                    "retbleed".to_owned(),
                    "Mitigation: untrained return thunk".to_owned()
                )],
                governor: text("performance, powersave"),
                turbo: Some(false),
                smt: Some(false),
                load: Some(Load([0.5, 0.25, 0.1])),
                ..Machine::default()
            }
        );
        assert!(machine.id.is_some() && machine.boot.is_some() && machine.id != machine.boot);
    }

    #[test]
    fn what_is_not_there_is_not_known() {
        let dir = root(&[
            ("sys/devices/system/cpu/smt/active", "maybe\n"),
            ("etc/machine-id", "\n"),
        ]);
        assert_eq!(Machine::read(dir.path()), Machine::default());
    }

    #[test]
    fn this_machine_has_a_boot_and_a_load() {
        let machine = Machine::read(Path::new("/"));
        assert!(
            machine.boot.is_some() && machine.load.is_some(),
            "{machine:?}"
        );
    }
}
