//! The kernel of the lab's machines and its modules: Debian's, unpacked below the target directory and kept there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tools;
use crate::Failure;

/// The package that always depends on Debian's newest kernel.
const PACKAGE: &str = "linux-image-amd64";

/// Modules that the machines load; what they depend on is loaded before them.
const MODULES: [&str; 1] = ["kvm-amd"];

/// Modules that the guests of a machine load.
const GUEST_MODULES: [&str; 1] = ["pvpanic-mmio"];

/// Name and contents, in the order in which they are to be loaded.
pub(crate) type Modules = Vec<(String, Vec<u8>)>;

#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    pub(crate) modules: Modules,
    pub(crate) guest_modules: Modules,
}

impl Kernel {
    /// Takes the kernel from `dir`, or fetches it there.
    ///
    /// # Errors
    ///
    /// Where apt-get cannot fetch it, or the package is not laid out as Debian's are.
    pub(crate) fn get(dir: &Path) -> Result<Self, Failure> {
        if !dir.exists() {
            fetch(dir)?;
        }
        let broken = |error| Failure::other(format!("{}: {error}", dir.display()));
        let missing = |what: &str| {
            Failure::other(format!(
                "There is no {what} below {}; delete it",
                dir.display()
            ))
        };
        let images = fs::read_dir(dir.join("boot")).map_err(broken)?;
        let mut images = images.flatten().map(|entry| entry.path());
        let image = images
            .find(|path| path.file_name().is_some_and(is_kernel))
            .ok_or_else(|| missing("kernel"))?;
        let mut files = BTreeMap::new();
        // Where Debian keeps modules has changed.
        for place in ["lib/modules", "usr/lib/modules"] {
            find_modules(&dir.join(place), &mut files).map_err(broken)?;
        }
        let load = |names: &[&str]| {
            let mut modules = Vec::new();
            for name in names {
                load_order(&module_name(name), &files, &mut modules)?;
            }
            Ok(modules)
        };
        Ok(Self {
            image,
            modules: load(&MODULES)?,
            guest_modules: load(&GUEST_MODULES)?,
        })
    }

    /// The ELF file that the kernel's image unpacks: for guests, which start sooner from it.
    ///
    /// # Errors
    ///
    /// Where the image cannot be read, or is not packed with xz.
    pub(crate) fn vmlinux(&self) -> Result<Vec<u8>, Failure> {
        let failed =
            |error: io::Error| Failure::other(format!("{}: {error}", self.image.display()));
        let image = fs::read(&self.image).map_err(failed)?;
        let packed = payload(&image)
            .ok_or_else(|| Failure::other(format!("{} is no bzImage", self.image.display())))?;
        let file = self.image.with_extension("xz");
        fs::write(&file, packed).map_err(failed)?;
        let unpacked = tools::output(
            Command::new("xz")
                .args(["-dc", "--single-stream"])
                .arg(&file),
        );
        fs::remove_file(&file).map_err(failed)?;
        unpacked
    }
}

/// The packed kernel in a bzImage (Documentation/arch/x86/boot.rst: `setup_sects`, `payload_offset`,
/// `payload_length`), without the unpacked length that follows it.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let setup = (usize::from(*image.get(0x1f1)?) + 1) * 512;
    let from = setup + number(0x248)?;
    image.get(from..from + number(0x24c)?.checked_sub(4)?)
}

fn is_kernel(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with("vmlinuz-")
}

fn fetch(dir: &Path) -> Result<(), Failure> {
    let listed = tools::output(Command::new("apt-cache").args(["depends", PACKAGE]))
        .map_err(|failure| unfetched(&failure))?;
    let listed = String::from_utf8_lossy(&listed);
    let package = newest(&listed)
        .ok_or_else(|| unfetched(&Failure::other(format!("{PACKAGE} is not known"))))?;
    eprintln!("lab: fetching {package}");
    // Unpacked beside its place and renamed, so that what is there is whole.
    let unpacking = dir.with_extension("new");
    let prepare = || -> io::Result<()> {
        if unpacking.exists() {
            fs::remove_dir_all(&unpacking)?;
        }
        fs::create_dir_all(&unpacking)
    };
    let failed = |error: io::Error| Failure::other(format!("{}: {error}", unpacking.display()));
    prepare().map_err(failed)?;
    let mut download = Command::new("apt-get");
    download
        .args(["-q", "download", package])
        .current_dir(&unpacking);
    tools::output(&mut download).map_err(|failure| unfetched(&failure))?;
    let entries = fs::read_dir(&unpacking).map_err(failed)?;
    for archive in entries.flatten().map(|entry| entry.path()) {
        tools::output(Command::new("dpkg").arg("-x").arg(&archive).arg(&unpacking))?;
        fs::remove_file(&archive).map_err(failed)?;
    }
    fs::rename(&unpacking, dir).map_err(failed)
}

fn unfetched(failure: &Failure) -> Failure {
    Failure::other(format!(
        "the kernel {PACKAGE} cannot be fetched: sudo apt-get update ({})",
        failure.text.replace('\n', "; ")
    ))
}

/// The kernel that the package depends on, from what apt-cache prints.
fn newest(depends: &str) -> Option<&str> {
    let mut lines = depends.lines().map(str::trim);
    lines.find_map(|line| {
        let package = line.strip_prefix("Depends: ")?;
        package.starts_with("linux-image-").then_some(package)
    })
}

/// Modules by their names, with the files that hold them.
type ModuleFiles = BTreeMap<String, PathBuf>;

/// A module's name as the kernel writes it: its file's name may have dashes.
fn module_name(text: &str) -> String {
    text.replace('-', "_")
}

fn find_modules(dir: &Path, files: &mut ModuleFiles) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_modules(&entry.path(), files)?;
        } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko") {
            files.insert(module_name(name), entry.path());
        }
    }
    Ok(())
}

/// Adds the module after those that it depends on.
fn load_order(name: &str, files: &ModuleFiles, order: &mut Modules) -> Result<(), Failure> {
    if order.iter().any(|(known, _)| known == name) {
        return Ok(());
    }
    let file = files
        .get(name)
        .ok_or_else(|| Failure::other(format!("The kernel has no module {name}")))?;
    let contents = match file.extension().and_then(OsStr::to_str) {
        Some("xz") => tools::output(Command::new("xz").arg("-dc").arg(file))?,
        Some("zst") => tools::output(Command::new("zstd").arg("-dc").arg(file))?,
        _ => fs::read(file)
            .map_err(|error| Failure::other(format!("{}: {error}", file.display())))?,
    };
    for needed in depends(&contents) {
        load_order(&module_name(&needed), files, order)?;
    }
    order.push((name.to_owned(), contents));
    Ok(())
}

/// What a module says in its `.modinfo` section that it depends on: `depends=kvm,ccp` between zero bytes.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else {
        return Vec::new();
    };
    let value = module[at + KEY.len()..].split(|&byte| byte == 0);
    let value = String::from_utf8_lossy(value.into_iter().next().unwrap_or_default());
    let names = value.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_the_one_depended_on() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-57-amd64\n  Suggests: x\n";
        assert_eq!(newest(text), Some("linux-image-6.1.0-57-amd64"));
        assert_eq!(newest("linux-image-amd64\n"), None);
    }

    #[test]
    fn the_packed_kernel_is_where_its_header_says() {
        let mut image = vec![0; 1100];
        image[0x1f1] = 1;
        image[0x248] = 6;
        image[0x24c] = 10;
        image[1030..1036].copy_from_slice(b"packed");
        assert_eq!(payload(&image), Some(&b"packed"[..]));
        assert_eq!(payload(&image[..1035]), None);
        assert_eq!(payload(&[]), None);
    }

    #[test]
    fn modules_are_loaded_after_what_they_depend_on() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let kvm = dir.path().join("arch/kvm");
        fs::create_dir_all(&kvm).expect("created");
        for (name, text) in [
            ("kvm-amd.ko", "\0license=GPL\0depends=kvm,ccp\0"),
            ("kvm.ko", "\0depends=irqbypass\0name=kvm\0"),
            ("ccp.ko", "\0depends=\0"),
            ("irqbypass.ko", "\0license=GPL\0"),
        ] {
            fs::write(kvm.join(name), text).expect("written");
        }
        let mut files = ModuleFiles::new();
        find_modules(dir.path(), &mut files).expect("readable");
        let mut order = Vec::new();
        load_order("kvm_amd", &files, &mut order).expect("all there");
        let names: Vec<&str> = order.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["irqbypass", "kvm", "ccp", "kvm_amd"]);
        assert!(load_order("kvm_intel", &files, &mut order).is_err());
    }
}
