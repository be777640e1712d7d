//! Kernel and initramfs files: what is refused, and what memory they need.

use super::*;

/// The first bytes of a bzImage of `sectors` and 16 × `paragraphs` bytes, by the 64-bit protocol.
fn bzimage(paragraphs: u32) -> Vec<u8> {
    let mut file = vec![0; 1024 + 16 * paragraphs as usize];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[1]);
    put(0x1f4, &paragraphs.to_le_bytes());
    put(0x1fe, &[0x55, 0xaa]);
    put(0x202, b"HdrS");
    put(0x206, &0x20f_u16.to_le_bytes());
    put(0x211, &[1]);
    put(0x22c, &0x7fff_ffff_u32.to_le_bytes());
    put(0x230, &0x20_0000_u32.to_le_bytes());
    put(0x236, &[1, 0]);
    put(0x238, &2047_u32.to_le_bytes());
    put(0x258, &0x100_0000_u64.to_le_bytes());
    put(0x260, &0x300_0000_u32.to_le_bytes());
    file
}

fn kernel(bytes: &[u8]) -> Result<Kernel, BootError> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    fs::write(&path, bytes).expect("written");
    Kernel::open(&path)
}

#[track_caller]
fn refused(bytes: &[u8], why: &str) {
    let error = kernel(bytes).expect_err("no kernel");
    assert_eq!(error.class(), prezero_memory::Class::Usage);
    assert!(error.fix().is_some(), "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn images_are_what_they_are() {
    let image = kernel(&bzimage(100)).expect("a kernel");
    assert_eq!(
        (image.format(), image.protocol()),
        ("bzImage", BootProtocol::Linux64)
    );
    assert_eq!((image.loaded(), image.end()), ((MIB, MIB + 1600), 64 * MIB));
    let image = kernel(&pvh_kernel(&FOREVER)).expect("a kernel");
    assert_eq!(
        (image.format(), image.protocol()),
        ("vmlinux", BootProtocol::Pvh)
    );
    assert_eq!((image.loaded(), image.end()), ((MIB, MIB + 2), MIB + 2));
}

#[test]
fn what_is_no_kernel_is_refused_with_the_reason() {
    refused(b"", "less than 4 bytes");
    refused(b"#!/bin/sh\n", "nor long enough for a bzImage");
    refused(&[0x5a; 4096], "nor has it the header");
    refused(b"\x7fELF\x02", "truncated");
    let changed = |at: usize, to: u8| {
        let mut file = bzimage(1);
        file[at] = to;
        file
    };
    refused(&changed(0x236, 0), "no 64-bit entry");
    refused(&changed(0x211, 0), "zImage");
    let changed = |at: usize, to: u8| {
        let mut file = pvh_kernel(&FOREVER);
        file[at] = to;
        file
    };
    refused(&changed(4, 1), "another architecture");
    refused(&changed(18, 183), "another architecture");
    refused(&changed(16, 3), "to be linked");
    // Without PVH's note it is a program like any other.
    refused(&changed(64 + 112 + 8, 17), "it is a program");
    let own = fs::read(std::env::current_exe().expect("this program")).expect("read");
    refused(&own, "is not a kernel");
}

#[test]
fn every_cut_of_an_image_is_refused() {
    for whole in [bzimage(4), pvh_kernel(&FOREVER)] {
        assert!(kernel(&whole).is_ok());
        for len in 0..whole.len() {
            let error = kernel(&whole[..len]).expect_err("cut");
            assert_eq!(error.class(), prezero_memory::Class::Usage, "{len} {error}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    for path in ["/nonexistent/vmlinuz", "/dev", "/dev/null"] {
        for error in [
            Kernel::open(Path::new(path)).expect_err("no file"),
            Initramfs::open(Path::new(path)).expect_err("no file"),
        ] {
            assert!(error.to_string().contains(path), "{error}");
            assert_eq!(error.class(), prezero_memory::Class::Usage);
        }
    }
}

fn request(kernel: Kernel, initramfs: Option<u64>, ram: u64) -> LinuxRequest {
    let initramfs = initramfs.map(|len| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(len).expect("longer");
        Initramfs::open(file.path()).expect("an initramfs")
    });
    LinuxRequest {
        kernel,
        initramfs,
        cmdline: String::new(),
        cpus: 1,
        nodes: vec![GuestNode {
            ram: vec![(0, ram)],
            distances: Vec::new(),
        }],
    }
}

const FACTS: KvmFacts = KvmFacts {
    max_vcpus: 8,
    max_slots: 8,
    gib_pages: true,
    phys_bits: 46,
};

#[test]
fn kernel_and_initramfs_have_to_fit() {
    let linux = |initramfs, ram| {
        let kernel = kernel(&bzimage(1)).expect("a kernel");
        Linux::new(request(kernel, initramfs, ram), &FACTS)
    };
    let at = |initramfs, ram| linux(initramfs, ram).expect("it fits").initramfs_at;
    assert_eq!(at(None, 64 * MIB), None);
    assert_eq!(at(Some(1), 65 * MIB), Some(65 * MIB - 4096));
    assert_eq!(at(Some(MIB), 65 * MIB), Some(64 * MIB));
    // Not above what the kernel's header allows.
    assert_eq!(at(Some(MIB), 3 << 30), Some((2 << 30) - MIB));
    let error = linux(None, 64 * MIB - 4096).expect_err("too large");
    assert!(matches!(error, BootError::KernelTooLarge { .. }), "{error}");
    assert_eq!(error.fix().as_deref(), Some("`--memory 64M` or more"));
    let error = linux(Some(MIB + 1), 65 * MIB).expect_err("too large");
    assert!(
        matches!(error, BootError::InitramfsTooLarge { room, .. } if room == MIB),
        "{error}"
    );
    assert_eq!(error.class(), prezero_memory::Class::Shortage);
    assert_eq!(error.fix().as_deref(), Some("`--memory 128M` or more"));
    // So much more, and it fits.
    let (end, more) = error.wants_memory().expect("memory helps");
    assert_eq!((end, more), (65 * MIB + 4096, 4096));
    assert_eq!(at(Some(MIB + 1), end), Some(64 * MIB));
    // Kernel and initramfs between 64 MiB and 2 GiB: the largest, and one byte more, which no memory helps.
    let most = (2 << 30) - 64 * MIB;
    assert_eq!(at(Some(most), 3 << 30), Some(64 * MIB));
    for ram in [65 * MIB, 3 << 30] {
        let error = linux(Some(most + 1), ram).expect_err("too large");
        assert!(
            matches!(error, BootError::InitramfsTooHigh { room, .. } if room == most),
            "{error}"
        );
        assert_eq!(error.class(), prezero_memory::Class::Usage);
        assert!(error.fix().is_some_and(|fix| fix.contains("1984 MiB")));
        assert_eq!(error.wants_memory(), None);
    }
    let error = linux(Some(most), 1 << 30).expect_err("too large");
    assert_eq!(error.class(), prezero_memory::Class::Shortage);
}

#[test]
fn command_lines_have_to_fit_and_to_be_printable() {
    let linux = |cmdline: &str| {
        let kernel = kernel(&bzimage(1)).expect("a kernel");
        let request = LinuxRequest {
            cmdline: cmdline.to_owned(),
            ..request(kernel, None, 64 * MIB)
        };
        Linux::new(request, &FACTS)
    };
    assert!(linux(&"a".repeat(2047)).is_ok());
    let error = linux(&"a".repeat(2048)).expect_err("too long");
    assert!(
        matches!(error, BootError::CmdlineTooLong { max: 2047, .. }),
        "{error}"
    );
    for (cmdline, at) in [("a\nb", 1), ("quiet\0", 5), ("ä", 0)] {
        let error = linux(cmdline).expect_err("not printable");
        assert!(
            matches!(error, BootError::CmdlineByte { at: found, .. } if found == at),
            "{error}"
        );
    }
}

#[test]
fn a_kernel_is_loaded_where_it_says_and_its_initramfs_above() {
    let mut linux = Linux::new(
        request(
            kernel(&pvh_kernel(b"code")).expect("a kernel"),
            Some(5000),
            16 * MIB,
        ),
        &FACTS,
    )
    .expect("it fits");
    let mem = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), 16 << 20)]).expect("memory");
    linux.load(&mem).expect("loaded");
    let read = |gpa: u64| mem.read_obj::<u64>(GuestAddress(gpa)).expect("memory");
    assert_eq!(read(KERNEL_AT.into()) as u32, u32::from_le_bytes(*b"code"));
    // Magic and version, one module, at the end of memory.
    assert_eq!(read(START_INFO), 1 << 32 | 0x336e_c578);
    assert_eq!(read(START_INFO + 8) >> 32, 1);
    assert_eq!(
        (read(MODULE_LIST), read(MODULE_LIST + 8)),
        (16 * MIB - 8192, 5000)
    );
    assert_eq!(read(MEMORY_MAP + 8), 0x9_fc00);
}
