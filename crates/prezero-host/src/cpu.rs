//! What kind of CPU the host has.

use std::io::{self, Read};

use crate::fields::{field, only};
use crate::root::Root;

/// The CPU model, from the first block of `/proc/cpuinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cpu {
    /// `GenuineIntel`, `AuthenticAMD`; empty where the architecture's file has no `vendor_id`.
    pub vendor: String,
    /// The model's name as the vendor writes it; empty where there is none.
    pub model: String,
    /// The revision of the microcode, such as `0xa0011d5`, which a hypervisor may make up; empty where
    /// there is none, as on arm64.
    pub microcode: String,
    /// How many bits a physical address has: a bound for guest-physical addresses too. `None` where
    /// `/proc/cpuinfo` has no `address sizes`, as on arm64.
    pub phys_addr_bits: Option<u8>,
    /// Whether this host is itself a virtual machine, as the x86 flag of that name says.
    pub hypervisor: bool,
    /// Whether KVM has VT-x or SVM to run guests with (the flags vmx and svm), false also where the architecture has no
    /// such flags. A virtual machine may have a /dev/kvm without.
    pub virtualization: bool,
}

/// The flags that are looked for.
const HYPERVISOR: &str = "hypervisor";
const VIRTUALIZATION: [&str; 2] = ["vmx", "svm"];

const CPUINFO: &str = "proc/cpuinfo";

impl Cpu {
    pub(crate) fn read(root: &mut Root) -> Self {
        let Some(file) = root.open(CPUINFO) else {
            return Self::default();
        };
        let block = first_block(file);
        let block = root.present(CPUINFO, block).unwrap_or_default();
        let block = used_lines(&block);
        root.keep(CPUINFO, &block);
        let flags = field(&block, "flags").unwrap_or_default();
        let has = |flag: &str| flags.split_whitespace().any(|found| found == flag);
        let text = |name| field(&block, name).unwrap_or_default().to_owned();
        Self {
            vendor: text("vendor_id"),
            model: text("model name"),
            microcode: text("microcode"),
            phys_addr_bits: field(&block, "address sizes")
                .and_then(|sizes| root.understand(CPUINFO, sizes, physical_bits)),
            hypervisor: has(HYPERVISOR),
            virtualization: VIRTUALIZATION.into_iter().any(has),
        }
    }
}

fn used_lines(block: &str) -> String {
    let mut kept = only(
        block,
        &["vendor_id", "model name", "microcode", "address sizes"],
    );
    let flags = field(block, "flags").unwrap_or_default();
    let flags = flags.split_whitespace();
    let flags: Vec<&str> = flags
        .filter(|flag| *flag == HYPERVISOR || VIRTUALIZATION.contains(flag))
        .collect();
    if !flags.is_empty() {
        kept.push_str(&format!("flags: {}\n", flags.join(" ")));
    }
    kept
}

/// The file up to the first blank line. It is read in small pieces because the kernel makes the
/// text of a CPU when it is asked for: 512 of them take milliseconds.
fn first_block(mut file: impl Read) -> io::Result<String> {
    const PIECE: usize = 1 << 10;
    const LIMIT: usize = 1 << 16;
    let mut block = Vec::new();
    while block.len() < LIMIT {
        let searched = block.len().saturating_sub(1);
        let mut piece = [0; PIECE];
        let read = match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        block.extend_from_slice(&piece[..read]);
        if let Some(end) = block[searched..]
            .windows(2)
            .position(|pair| pair == b"\n\n")
        {
            block.truncate(searched + end);
            break;
        }
    }
    Ok(String::from_utf8_lossy(&block).into_owned())
}

/// The 48 of `48 bits physical, 48 bits virtual`. 64 is the most that an address can have.
fn physical_bits(sizes: &str) -> Option<u8> {
    let bits = sizes
        .split(',')
        .find_map(|size| size.trim().strip_suffix("bits physical"))?;
    bits.trim_end()
        .parse()
        .ok()
        .filter(|bits| (1..=64).contains(bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::with_files;
    use proptest::prelude::*;

    fn cpuinfo(contents: &str) -> (Cpu, usize) {
        let dir = with_files(&[(CPUINFO, contents)]);
        let mut root = Root::new(dir.path());
        (Cpu::read(&mut root), root.problems.len())
    }

    #[test]
    fn only_the_first_processor_counts() {
        let (cpu, problems) = cpuinfo(
            "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nmicrocode\t: 0xa0011d5\n\
             flags\t\t: fpu vme\naddress sizes\t: 48 bits physical, 57 bits virtual\n\n\
             processor\t: 1\nflags\t\t: hypervisor\naddress sizes\t: 52 bits physical\n\n",
        );
        assert_eq!(cpu.vendor, "AuthenticAMD");
        assert_eq!(cpu.model, "AMD EPYC");
        assert_eq!(cpu.microcode, "0xa0011d5");
        assert_eq!(cpu.phys_addr_bits, Some(48));
        assert!(!cpu.hypervisor);
        assert_eq!(problems, 0);
    }

    #[test]
    fn vt_x_and_svm_are_flags() {
        for (flags, wanted) in [
            ("fpu vmx lm", true),
            ("svm", true),
            ("svm_lock svme", false),
            ("hypervisor", false),
        ] {
            let cpu = cpuinfo(&format!("flags: {flags}\n")).0;
            assert_eq!(cpu.virtualization, wanted, "{flags}");
        }
    }

    #[test]
    fn hypervisor_is_a_flag_and_not_part_of_one() {
        assert!(cpuinfo("flags: fpu hypervisor lm\n").0.hypervisor);
        assert!(
            !cpuinfo("flags: hypervisor_lite\nbugs: hypervisor\n")
                .0
                .hypervisor
        );
    }

    #[test]
    fn impossible_address_sizes_are_a_problem() {
        for sizes in [
            "0 bits physical",
            "65 bits physical",
            "300 bits physical",
            "48 bits virtual",
            "",
        ] {
            let (cpu, problems) = cpuinfo(&format!("address sizes\t: {sizes}\n"));
            assert_eq!((cpu.phys_addr_bits, problems), (None, 1), "{sizes}");
        }
    }

    /// Hands out `pieces` one per read and fails the test when asked for more.
    struct Pieces(Vec<&'static str>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            assert!(!self.0.is_empty(), "read on after the blank line");
            let piece = self.0.remove(0).as_bytes();
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn reading_stops_at_the_blank_line_even_between_two_pieces() {
        assert_eq!(
            first_block(Pieces(vec!["a: 1\n", "b: 2\n", "\nc: 3"])).unwrap(),
            "a: 1\nb: 2"
        );
        assert_eq!(first_block(Pieces(vec!["a: 1\n\nb: 2"])).unwrap(), "a: 1");
    }

    #[test]
    fn a_file_without_blank_lines_is_not_read_for_ever() {
        assert!(first_block(io::repeat(b'x')).unwrap().len() < 1 << 17);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_cpu(bytes in prop::collection::vec(any::<u8>(), 0..300), sizes in "[0-9bits phycal,]{0,40}") {
            let _ = first_block(&bytes[..]).unwrap();
            let _ = physical_bits(&sizes);
        }
    }
}
