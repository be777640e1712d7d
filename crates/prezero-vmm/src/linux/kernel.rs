//! Kernel images: what they are, what memory they need, and how they get into it.
//!
//! A bzImage is started by the 64-bit boot protocol (Documentation/arch/x86/boot.rst); an ELF file by PVH where it has
//! that note, else at its 64-bit entry point.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use linux_loader::loader::KernelLoader;
use linux_loader::loader::bootparam::setup_header;
use linux_loader::loader::bzimage::BzImage;
use linux_loader::loader::elf::Elf;
use vm_memory::{ByteValued, GuestAddress, GuestMemoryBackend};

use super::elf::{self, ElfKernel};
use super::error::BootError;
use super::layout::HIGH_RAM;

/// Where the setup header is in a bzImage.
const HEADER_AT: u64 = 0x1f1;
const BOOT_FLAG: u16 = 0xaa55;
const HEADER_MAGIC: u32 = 0x5372_6448; // "HdrS"
/// The protocol with 64-bit entry, 2.12.
const PROTOCOL_64_BIT: u16 = 0x020c;
/// `XLF_KERNEL_64`: the entry at 0x200 exists.
const HAS_64_BIT_ENTRY: u16 = 1;
/// From the start of the protected-mode code to the 64-bit entry point.
const ENTRY_64_BIT: u64 = 0x200;
/// `COMMAND_LINE_SIZE` of x86 without the final zero, where no header says it.
const CMDLINE_MAX: u64 = 2047;

/// How the first vCPU enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootProtocol {
    /// In 64-bit mode, with `boot_params`.
    Linux64,
    /// In 32-bit protected mode, with a PVH start info.
    Pvh,
}

impl BootProtocol {
    /// As it stands in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            BootProtocol::Linux64 => "linux64",
            BootProtocol::Pvh => "pvh",
        }
    }
}

#[derive(Clone, Debug)]
enum Image {
    BzImage(Box<setup_header>),
    Elf(ElfKernel),
}

/// A kernel image that has been looked at from its first to its last byte's offset.
#[derive(Debug)]
pub struct Kernel {
    path: PathBuf,
    file: File,
    len: u64,
    image: Image,
}

/// A kernel in memory.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) entry: u64,
    /// Its own header, for a bzImage.
    pub(super) header: Option<setup_header>,
}

impl Kernel {
    /// Opens a kernel image and checks that it is one, and whole.
    ///
    /// # Errors
    ///
    /// It cannot be read, is no kernel for x86-64, or ends too early.
    pub fn open(path: &Path) -> Result<Kernel, BootError> {
        let (mut file, len) = open("kernel", path)?;
        let unreadable = |source| BootError::Unreadable {
            what: "kernel",
            path: path.into(),
            source,
        };
        let mut magic = [0; 4];
        match file.read_exact(&mut magic) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(BootError::NotAKernel {
                    path: path.into(),
                    why: "it has less than 4 bytes",
                });
            }
            read => read.map_err(unreadable)?,
        }
        let image = match magic == elf::MAGIC {
            true => Image::Elf(elf::check(path, &file, len)?),
            false => Image::BzImage(check_bzimage(path, &file, len)?),
        };
        Ok(Kernel {
            path: path.into(),
            file,
            len,
            image,
        })
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never true: an empty file is no kernel.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// "bzImage" or "vmlinux".
    #[must_use]
    pub fn format(&self) -> &'static str {
        match self.image {
            Image::BzImage(_) => "bzImage",
            Image::Elf(_) => "vmlinux",
        }
    }

    /// How it is entered.
    #[must_use]
    pub fn protocol(&self) -> BootProtocol {
        match &self.image {
            Image::Elf(elf) if elf.pvh_entry.is_some() => BootProtocol::Pvh,
            _ => BootProtocol::Linux64,
        }
    }

    /// The guest addresses that its file is loaded to, first and end.
    pub(super) fn loaded(&self) -> (u64, u64) {
        match &self.image {
            Image::BzImage(header) => (HIGH_RAM, HIGH_RAM + self.len - setup_bytes(header)),
            Image::Elf(elf) => (elf.first, elf.file_end),
        }
    }

    /// The first guest address after all that it needs before it has read the memory map. A bzImage unpacks itself to
    /// where it prefers to be, or above where it is.
    pub(super) fn end(&self) -> u64 {
        match &self.image {
            Image::BzImage(header) => {
                let align = u64::from(header.kernel_alignment).max(1);
                let to = header.pref_address.max(HIGH_RAM.next_multiple_of(align));
                to.saturating_add(header.init_size.into())
                    .max(self.loaded().1)
            }
            Image::Elf(elf) => elf.end,
        }
    }

    /// The longest command line it takes, in bytes without the final zero.
    pub(super) fn cmdline_max(&self) -> u64 {
        match &self.image {
            Image::BzImage(header) => u64::from(header.cmdline_size).min(CMDLINE_MAX),
            Image::Elf(_) => CMDLINE_MAX,
        }
    }

    /// The first guest address that an initramfs may not have.
    pub(super) fn initramfs_end(&self) -> u64 {
        match &self.image {
            Image::BzImage(header) => u64::from(header.initrd_addr_max) + 1,
            // What a bzImage of the same kernel says.
            Image::Elf(_) => 0x8000_0000,
        }
    }

    /// Reads it into guest memory.
    pub(super) fn load<M: GuestMemoryBackend>(&mut self, mem: &M) -> Result<Loaded, BootError> {
        let to = Some(GuestAddress(HIGH_RAM));
        let loaded = match self.image {
            Image::BzImage(_) => BzImage::load(mem, to, &mut self.file, to),
            Image::Elf(_) => Elf::load(mem, None, &mut self.file, None),
        };
        loaded.map_err(|error| BootError::Load {
            what: "kernel",
            path: self.path.clone(),
            source: Box::new(error),
        })?;
        Ok(match &self.image {
            Image::BzImage(header) => Loaded {
                entry: HIGH_RAM + ENTRY_64_BIT,
                header: Some(**header),
            },
            Image::Elf(elf) => Loaded {
                entry: elf.pvh_entry.map_or(elf.entry, u64::from),
                header: None,
            },
        })
    }
}

/// A regular file and its length.
pub(super) fn open(what: &'static str, path: &Path) -> Result<(File, u64), BootError> {
    let unreadable = |source| BootError::Unreadable {
        what,
        path: path.into(),
        source,
    };
    // Looked at first: opening a pipe waits for its writer.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(BootError::NotAFile {
            what,
            path: path.into(),
        });
    }
    let file = File::open(path).map_err(unreadable)?;
    let len = file.metadata().map_err(unreadable)?.len();
    Ok((file, len))
}

fn setup_bytes(header: &setup_header) -> u64 {
    // "If this is 0 the real value is 4", boot.rst.
    let sectors = match header.setup_sects {
        0 => 4,
        sectors => sectors,
    };
    (u64::from(sectors) + 1) * 512
}

fn check_bzimage(path: &Path, file: &File, len: u64) -> Result<Box<setup_header>, BootError> {
    let not = |why| BootError::NotAKernel {
        path: path.into(),
        why,
    };
    let mut header = setup_header::default();
    match file.read_exact_at(header.as_mut_slice(), HEADER_AT) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(not(
                "it is neither an ELF file nor long enough for a bzImage",
            ));
        }
        read => read.map_err(|source| BootError::Unreadable {
            what: "kernel",
            path: path.into(),
            source,
        })?,
    }
    // The header is packed, so its fields are copied before they are used.
    let (boot_flag, magic, version) = (header.boot_flag, header.header, header.version);
    if boot_flag != BOOT_FLAG || magic != HEADER_MAGIC {
        return Err(not(
            "it is neither an ELF file nor has it the header of a bzImage",
        ));
    }
    if version < PROTOCOL_64_BIT || header.xloadflags & HAS_64_BIT_ENTRY == 0 {
        return Err(not("it has no 64-bit entry point"));
    }
    if header.loadflags & 1 == 0 {
        return Err(not("it is a zImage, which is loaded below 1 MiB"));
    }
    let needed = setup_bytes(&header) + 16 * u64::from(header.syssize);
    if len < needed {
        return Err(BootError::Truncated {
            path: path.into(),
            len,
            needed,
        });
    }
    Ok(Box::new(header))
}
