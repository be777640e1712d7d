//! The device `/dev/kvm`: what it can do, and why it may not be there.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use kvm_bindings::{CpuId, KVM_API_VERSION, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::Cap;
use prezero_memory::Class;
use thiserror::Error;

use crate::error::is_shortage;
use crate::vm::Vm;

/// `KVM_CREATE_VM` is retried this often when a signal interrupts it.
const CREATE_ATTEMPTS: u32 = 64;

/// Where Intel hosts keep three pages for real mode: the end of the 32-bit hole, as other VMMs choose it.
const TSS_ADDRESS: usize = 0xfffb_d000;

/// Why `/dev/kvm` cannot be used, or a virtual machine not be created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KvmError {
    /// The device does not exist, or no driver stands behind it.
    #[error("KVM device {} is absent", path.display())]
    Absent {
        /// The path tried.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// This user may not open the device.
    #[error("KVM device {} may not be opened by this user", path.display())]
    Forbidden {
        /// The path tried.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The device cannot be opened for another reason.
    #[error("KVM device {} cannot be opened", path.display())]
    Open {
        /// The path tried.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The file is not a KVM device, or one of an interface this crate does not know.
    #[error("{} {}", path.display(), describe(*found))]
    ApiVersion {
        /// The path tried.
        path: PathBuf,
        /// What `KVM_GET_API_VERSION` said; -1 where it failed.
        found: i32,
    },
    /// KVM lacks something without which no guest can run.
    #[error("KVM here lacks {name}")]
    MissingCapability {
        /// The capability's name in `linux/kvm.h`.
        name: &'static str,
    },
    /// `KVM_GET_SUPPORTED_CPUID` failed.
    #[error("KVM does not say which CPU features a guest may have")]
    Cpuid(#[source] io::Error),
    /// `KVM_CREATE_VM` failed with EBUSY: another hypervisor holds the CPU's virtualisation.
    #[error("Another hypervisor holds the CPU's virtualisation")]
    Busy(#[source] io::Error),
    /// `KVM_CREATE_VM` was interrupted by a signal every time.
    #[error("KVM_CREATE_VM was interrupted by a signal {attempts} times in a row")]
    Interrupted {
        /// How often it was tried.
        attempts: u32,
    },
    /// `KVM_CREATE_VM` failed.
    #[error("KVM cannot create a virtual machine")]
    CreateVm(#[source] io::Error),
    /// `KVM_SET_TSS_ADDR` failed.
    #[error("KVM refused {TSS_ADDRESS:#x} for its real-mode pages")]
    TssAddress(#[source] io::Error),
    /// `KVM_CREATE_IRQCHIP` or `KVM_CREATE_PIT2` failed.
    #[error("KVM cannot create the interrupt controllers and the timer of a Linux guest")]
    IrqChip(#[source] io::Error),
}

fn describe(version: i32) -> String {
    match version {
        -1 => "is not a KVM device".to_owned(),
        _ => format!("has KVM interface version {version}, {KVM_API_VERSION} is needed"),
    }
}

impl KvmError {
    /// What kind of error it is.
    pub fn class(&self) -> Class {
        match self {
            KvmError::Open { source, .. } | KvmError::CreateVm(source) if is_shortage(source) => {
                Class::Shortage
            }
            _ => Class::Host,
        }
    }

    /// Something the user can type, where there is something.
    pub fn fix(&self) -> Option<String> {
        match self {
            KvmError::Absent { .. } => Some(
                "`sudo modprobe kvm_intel` or `sudo modprobe kvm_amd`; if that fails, enable virtualisation in the firmware \
                 or, inside a virtual machine, nested virtualisation"
                    .into(),
            ),
            KvmError::Forbidden { path, .. } => {
                Some(format!("`sudo usermod -aG kvm $USER`, then log in again; see `ls -l {}`", path.display()))
            }
            KvmError::Busy(_) => {
                Some("`lsmod | grep -E 'vboxdrv|vmmon'`, then stop that hypervisor or `sudo modprobe -r` its module".into())
            }
            KvmError::Open { source, .. } | KvmError::CreateVm(source)
                if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) =>
            {
                Some("`ulimit -n 1024`".into())
            }
            KvmError::MissingCapability { .. } | KvmError::ApiVersion { .. } => {
                Some("`ls -l /dev/kvm; uname -r`: use the KVM of a Linux 5.14 or newer".into())
            }
            _ => None,
        }
    }
}

/// What a guest may use on this host, as KVM says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvmFacts {
    /// Most vCPUs of one virtual machine (`KVM_CAP_MAX_VCPUS`).
    pub max_vcpus: u32,
    /// Most memory slots of one virtual machine (`KVM_CAP_NR_MEMSLOTS`).
    pub max_slots: usize,
    /// Whether guest page tables may have 1 GiB entries (CPUID `pdpe1gb`).
    pub gib_pages: bool,
    /// Guest-physical addresses are below 2 to this power.
    pub phys_bits: u8,
}

/// An open KVM device.
#[derive(Debug)]
pub struct Kvm {
    fd: kvm_ioctls::Kvm,
    facts: KvmFacts,
    cpuid: CpuId,
}

impl Kvm {
    /// Opens the KVM device at `path`, which is `/dev/kvm` nearly everywhere, and asks what it can do.
    ///
    /// # Errors
    ///
    /// The device is absent, forbidden, not KVM, or lacks what every guest needs.
    pub fn open(path: &Path) -> Result<Kvm, KvmError> {
        let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|e| KvmError::Open {
            path: path.into(),
            source: e.into(),
        })?;
        let fd = kvm_ioctls::Kvm::new_with_path(&c_path).map_err(|e| {
            let (path, source) = (path.into(), io::Error::from(e));
            match e.errno() {
                // The node may exist without a driver: udev makes it so that opening it loads the module.
                libc::ENOENT | libc::ENODEV | libc::ENXIO => KvmError::Absent { path, source },
                libc::EACCES | libc::EPERM => KvmError::Forbidden { path, source },
                _ => KvmError::Open { path, source },
            }
        })?;
        let found = fd.get_api_version();
        if u32::try_from(found) != Ok(KVM_API_VERSION) {
            return Err(KvmError::ApiVersion {
                path: path.into(),
                found,
            });
        }
        if !fd.check_extension(Cap::UserMemory) {
            return Err(KvmError::MissingCapability {
                name: "KVM_CAP_USER_MEMORY",
            });
        }
        let cpuid = fd
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(|e| KvmError::Cpuid(e.into()))?;
        let facts = KvmFacts {
            max_vcpus: u32::try_from(fd.get_max_vcpus()).unwrap_or(u32::MAX),
            max_slots: fd.get_nr_memslots(),
            gib_pages: has_gib_pages(&cpuid),
            phys_bits: phys_bits(&cpuid),
        };
        Ok(Kvm { fd, facts, cpuid })
    }

    /// What a guest may use on this host.
    pub fn facts(&self) -> KvmFacts {
        self.facts
    }

    /// Creates a virtual machine without memory and without vCPUs.
    ///
    /// `KVM_CREATE_VM` gives up with EINTR when a signal arrives while it waits for other CPUs, so it is retried.
    ///
    /// # Errors
    ///
    /// KVM refuses; [`KvmError::Busy`] if another hypervisor runs on this host.
    pub fn create_vm(&self) -> Result<Vm, KvmError> {
        let fd = (0..CREATE_ATTEMPTS)
            .find_map(|_| match self.fd.create_vm() {
                Err(e) if e.errno() == libc::EINTR => None,
                other => Some(other),
            })
            .ok_or(KvmError::Interrupted {
                attempts: CREATE_ATTEMPTS,
            })?
            .map_err(|e| match e.errno() {
                libc::EBUSY => KvmError::Busy(e.into()),
                _ => KvmError::CreateVm(e.into()),
            })?;
        // "This ioctl is required on Intel-based hosts" (api.rst, 4.37); on others it does nothing.
        fd.set_tss_address(TSS_ADDRESS)
            .map_err(|e| KvmError::TssAddress(e.into()))?;
        Ok(Vm::new(fd, self.facts, self.cpuid.clone()))
    }
}

/// CPUID leaf 0x8000_0001, EDX bit 26.
fn has_gib_pages(cpuid: &CpuId) -> bool {
    cpuid
        .as_slice()
        .iter()
        .any(|e| e.function == 0x8000_0001 && e.edx & (1 << 26) != 0)
}

/// CPUID leaf 0x8000_0008: EAX bits 7..0, or bits 23..16 where those say that a guest's are fewer; 36 without the leaf.
fn phys_bits(cpuid: &CpuId) -> u8 {
    let Some(leaf) = cpuid.as_slice().iter().find(|e| e.function == 0x8000_0008) else {
        return 36;
    };
    let [physical, _linear, guest, _] = leaf.eax.to_le_bytes();
    if guest == 0 {
        physical
    } else {
        physical.min(guest)
    }
}

#[cfg(test)]
mod tests {
    use kvm_bindings::kvm_cpuid_entry2;

    use super::*;

    fn cpuid(function: u32, eax: u32, edx: u32) -> CpuId {
        CpuId::from_entries(&[kvm_cpuid_entry2 {
            function,
            eax,
            edx,
            ..Default::default()
        }])
        .unwrap()
    }

    #[test]
    fn reads_gib_pages_and_address_bits_from_cpuid() {
        assert!(has_gib_pages(&cpuid(0x8000_0001, 0, 1 << 26)));
        assert!(!has_gib_pages(&cpuid(0x8000_0001, 0, !(1 << 26))));
        assert_eq!(phys_bits(&cpuid(0x8000_0008, 0x3034, 0)), 52);
        assert_eq!(phys_bits(&cpuid(0x8000_0008, 0x30_3034, 0)), 48);
        assert_eq!(phys_bits(&cpuid(0, 0, 0)), 36);
    }

    #[test]
    fn tells_absent_forbidden_and_foreign_devices_apart() {
        let absent = Kvm::open(Path::new("/dev/no-such-kvm")).unwrap_err();
        assert!(matches!(absent, KvmError::Absent { .. }));
        assert!(absent.fix().unwrap().contains("modprobe"));
        let foreign = Kvm::open(Path::new("/dev/null")).unwrap_err();
        assert!(
            matches!(foreign, KvmError::ApiVersion { found: -1, .. }),
            "{foreign}"
        );
        // Opening a directory for writing fails with EISDIR for everyone, root included.
        assert!(matches!(
            Kvm::open(Path::new("/")).unwrap_err(),
            KvmError::Open { .. }
        ));
        let nul = Path::new(std::ffi::OsStr::from_bytes(b"/dev/\0"));
        assert!(matches!(Kvm::open(nul).unwrap_err(), KvmError::Open { .. }));
    }
}
