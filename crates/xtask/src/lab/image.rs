//! The initramfs: busybox, jq, the kernel's modules, the programs under test, and the lab's scripts. A second archive
//! behind it, which Linux unpacks over it, holds the scenarios of one boot.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::kernel::{Kernel, Modules};
use super::scenario::Scenario;
use super::tools;
use crate::Failure;
use crate::check::workspace;

/// Files by their paths in the image, with their contents; directories need not be named.
#[derive(Debug, Default)]
pub(crate) struct Image {
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Image {
    /// What all machines have. `tests` are test programs by name, `scripts` is tests/lab.
    pub(crate) fn of_all(
        kernel: &Kernel,
        prezero: &Path,
        tests: &[(String, PathBuf)],
        scripts: &Path,
    ) -> Result<Self, Failure> {
        let mut image = Self::default();
        for tool in ["busybox", "jq"] {
            image.program(tool)?;
        }
        image.copy("bin/prezero", prezero)?;
        for (name, file) in tests {
            image.copy(&format!("lab/tests/{name}"), file)?;
        }
        image.modules("lab/modules", &kernel.modules);
        image.copy("init", &scripts.join("init"))?;
        image.copy("lab/README.md", &workspace().join("README.md"))?;
        for script in ["lib.sh", "linux.sh", "pools.sh", "readme.sh", "run.sh"] {
            image.copy(&format!("lab/{script}"), &scripts.join(script))?;
        }
        Ok(image)
    }

    /// What a guest of a machine has: its first file system.
    fn of_guest(kernel: &Kernel, scripts: &Path) -> Result<Self, Failure> {
        let mut image = Self::default();
        image.program("busybox")?;
        image.modules("modules", &kernel.guest_modules);
        image.copy("init", &scripts.join("guest/init"))?;
        Ok(image)
    }

    /// What machines have whose scenarios boot guests: a kernel, packed and unpacked, and a first file system. `dir`
    /// is for files that are made on the way.
    pub(crate) fn of_guests(kernel: &Kernel, scripts: &Path, dir: &Path) -> Result<Self, Failure> {
        let mut image = Self::default();
        image.copy("lab/guest/vmlinuz", &kernel.image)?;
        image
            .files
            .insert("lab/guest/vmlinux".into(), kernel.vmlinux()?);
        let archive = dir.join("guest");
        Self::of_guest(kernel, scripts)?
            .append(&dir.join("image"), &archive)
            .map_err(|error| Failure::other(format!("The guests' initramfs: {error}")))?;
        image.copy("lab/guest/initramfs", &archive)?;
        Ok(image)
    }

    /// The scenarios of one boot, numbered in their order, with how long each may take, and the workspace's files that
    /// they want.
    pub(crate) fn of_scenarios(scenarios: &[&Scenario], workspace: &Path) -> io::Result<Self> {
        let mut image = Self::default();
        for (n, scenario) in scenarios.iter().enumerate() {
            let dir = format!("lab/scenarios/{n:03}");
            image.add(&format!("{dir}/name"), scenario.name.as_bytes());
            if scenario.boots_guests {
                image.add(&format!("{dir}/guest"), b"");
            }
            let seconds = scenario.seconds.to_string();
            image.add(&format!("{dir}/seconds"), seconds.as_bytes());
            image.add(&format!("{dir}/script"), scenario.script.as_bytes());
            for file in &scenario.files {
                image.tree(&Path::new("lab/files").join(file), &workspace.join(file))?;
            }
        }
        Ok(image)
    }

    /// A file, or a directory with all that is in it.
    fn tree(&mut self, path: &Path, from: &Path) -> io::Result<()> {
        if !from.is_dir() {
            self.files.insert(path.into(), fs::read(from)?);
            return Ok(());
        }
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            self.tree(&path.join(&name), &from.join(&name))?;
        }
        Ok(())
    }

    fn add(&mut self, path: &str, contents: &[u8]) {
        self.files.insert(path.into(), contents.into());
    }

    /// Numbered in the order in which they are to be loaded.
    fn modules(&mut self, dir: &str, modules: &Modules) {
        for (n, (name, contents)) in modules.iter().enumerate() {
            self.add(&format!("{dir}/{n:02}-{name}.ko"), contents);
        }
    }

    fn copy(&mut self, path: &str, from: &Path) -> Result<(), Failure> {
        let contents = fs::read(from)
            .map_err(|error| Failure::other(format!("{}: {error}", from.display())))?;
        self.add(path, &contents);
        Ok(())
    }

    /// A program of the host, into /bin, and the libraries it needs, where it looks for them.
    fn program(&mut self, name: &str) -> Result<(), Failure> {
        let file = tools::find(name)
            .ok_or_else(|| Failure::other(format!("There is no program {name}")))?;
        // ldd fails for a static program, which is what is wanted.
        if let Ok(listed) = tools::output(Command::new("ldd").arg(&file)) {
            for library in libraries(&String::from_utf8_lossy(&listed)) {
                self.copy(library.trim_start_matches('/'), Path::new(library))?;
            }
        }
        self.copy(&format!("bin/{name}"), &file)
    }

    /// Appends the archive to a file; `dir` is where its files are laid out, and must not exist.
    pub(crate) fn append(&self, dir: &Path, archive: &Path) -> io::Result<()> {
        let mut paths = Vec::new();
        for (path, contents) in &self.files {
            let file = dir.join(path);
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&file, contents)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
            let dirs = path.ancestors().filter(|part| *part != Path::new(""));
            paths.extend(dirs.map(Path::to_path_buf));
        }
        // A directory comes before what is in it.
        paths.sort();
        paths.dedup();
        let mut list = Vec::new();
        for path in paths {
            writeln!(list, "{}", path.display())?;
        }
        let archive = File::options().create(true).append(true).open(archive)?;
        let mut cpio = Command::new("cpio")
            .args(["--quiet", "-o", "-H", "newc", "--owner", "+0:+0"])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(archive)
            .spawn()?;
        let wrote = cpio.stdin.take().map(|mut stdin| stdin.write_all(&list));
        let status = cpio.wait()?;
        wrote.unwrap_or(Ok(()))?;
        match status.success() {
            true => fs::remove_dir_all(dir),
            false => Err(io::Error::other(format!("cpio: {status}"))),
        }
    }
}

/// The files that ldd names.
fn libraries(listed: &str) -> Vec<&str> {
    let words = listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_is_among_the_libraries() {
        let listed = "\tlinux-vdso.so.1 (0x7ffd)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\t/lib64/ld.so.2 (0x7f)\n";
        assert_eq!(libraries(listed), ["/lib/libc.so.6", "/lib64/ld.so.2"]);
    }
}
