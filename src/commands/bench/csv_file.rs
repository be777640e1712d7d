//! The file of `--csv`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use prezero_memory::Class;

use crate::failure::Failure;

/// A file that is opened before minutes are spent on what goes into it. What is in it stays until then,
/// and a new one is gone again where nothing came of it.
pub(super) struct CsvFile<'a> {
    path: &'a Path,
    file: File,
    /// Whether it is new and nothing is in it.
    empty: bool,
}

impl<'a> CsvFile<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, Failure> {
        // Opening one waits for a reader, and cannot be interrupted.
        if fs::metadata(path).is_ok_and(|data| data.file_type().is_fifo()) {
            return Err(Failure {
                class: Class::Usage,
                message: format!("{} is a named pipe", path.display()),
                fix: Some("--csv /dev/stdout | COMMAND, or a file".to_owned()),
            });
        }
        let mut options = OpenOptions::new();
        options.write(true);
        let opened = match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                options.open(path).map(|file| (file, false))
            }
            opened => opened.map(|file| (file, true)),
        };
        let (file, empty) = opened.map_err(|error| Failure {
            class: match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Class::Host,
                ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
                    Class::Usage
                }
                _ => Class::Internal,
            },
            message: format!("{} cannot be written: {error}", path.display()),
            fix: Some("--csv \"$(mktemp)\"".to_owned()),
        })?;
        Ok(Self { path, file, empty })
    }

    /// Replaces what is in it by these rows.
    pub(super) fn write(
        mut self,
        rows: impl FnOnce(&File) -> csv::Result<()>,
    ) -> Result<(), Failure> {
        self.empty = false;
        // A pipe or terminal has no length to set.
        let regular = self.file.metadata().is_ok_and(|data| data.is_file());
        let cut = if regular {
            self.file.set_len(0)
        } else {
            Ok(())
        };
        let written = cut.map_err(csv::Error::from);
        let written = written.and_then(|()| rows(&self.file));
        written.map_err(|error| Failure {
            class: Class::Internal,
            message: format!(
                "Writing {}: {}",
                self.path.display(),
                io::Error::from(error)
            ),
            fix: Some("--csv \"$(mktemp)\"".to_owned()),
        })
    }
}

impl Drop for CsvFile<'_> {
    fn drop(&mut self) {
        if self.empty {
            let _ = fs::remove_file(self.path);
        }
    }
}
