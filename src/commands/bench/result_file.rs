//! The files of `--csv` and `--chart`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use prezero_memory::Class;

use crate::failure::Failure;
use crate::output::chart::ChartError;

/// Both of them, as far as they were asked for.
pub(super) struct ResultFiles<'a> {
    csv: Option<ResultFile<'a>>,
    chart: Option<ResultFile<'a>>,
}

impl<'a> ResultFiles<'a> {
    pub(super) fn open(csv: Option<&'a Path>, chart: Option<&'a Path>) -> Result<Self, Failure> {
        let csv = csv
            .map(|path| ResultFile::open("--csv", path))
            .transpose()?;
        let chart = chart
            .map(|path| ResultFile::open("--chart", path))
            .transpose()?;
        if let (Some(csv), Some(chart)) = (&csv, &chart) {
            csv.differs_from(chart)?;
        }
        Ok(Self { csv, chart })
    }

    pub(super) fn write(
        self,
        csv: impl FnOnce(&mut File) -> csv::Result<()>,
        chart: impl FnOnce() -> Result<String, ChartError>,
    ) -> Result<(), Failure> {
        if let Some(file) = self.csv {
            file.write(csv)?;
        }
        let Some(file) = self.chart else {
            return Ok(());
        };
        let drawn = chart().map_err(io::Error::other);
        file.write(|file| file.write_all(drawn?.as_bytes()))
    }
}

/// A file that is opened before minutes are spent on what goes into it. What is in it stays until then,
/// and a new one is gone again where nothing came of it.
struct ResultFile<'a> {
    option: &'static str,
    path: &'a Path,
    file: File,
    /// Whether it is new and nothing is in it.
    empty: bool,
}

impl<'a> ResultFile<'a> {
    /// `option` is the one that named it.
    fn open(option: &'static str, path: &'a Path) -> Result<Self, Failure> {
        // Opening one waits for a reader, and cannot be interrupted.
        if fs::metadata(path).is_ok_and(|data| data.file_type().is_fifo()) {
            return Err(Failure {
                class: Class::Usage,
                message: format!("{} is a named pipe", path.display()),
                fix: Some(format!("{option} /dev/stdout | COMMAND, or a file")),
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
            fix: Some(elsewhere(option)),
        })?;
        Ok(Self {
            option,
            path,
            file,
            empty,
        })
    }

    /// Two results in one file would be neither.
    fn differs_from(&self, other: &Self) -> Result<(), Failure> {
        let id = |of: &Self| {
            let data = of.file.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((data.dev(), data.ino()))
        };
        if id(self).is_none() || id(self) != id(other) {
            return Ok(());
        }
        let (path, options) = (self.path.display(), [self.option, other.option]);
        Err(Failure {
            class: Class::Usage,
            message: format!("{} and {} both name {path}", options[0], options[1]),
            fix: Some(elsewhere(options[1])),
        })
    }

    /// Puts the result in place of what was in the file.
    fn write<E: Into<io::Error>>(
        mut self,
        write: impl FnOnce(&mut File) -> Result<(), E>,
    ) -> Result<(), Failure> {
        self.empty = false;
        // A pipe or terminal has no length to set.
        let regular = self.file.metadata().is_ok_and(|data| data.is_file());
        let cut = if regular {
            self.file.set_len(0)
        } else {
            Ok(())
        };
        let written = cut.and_then(|()| write(&mut self.file).map_err(Into::into));
        written.map_err(|error| Failure {
            class: Class::Internal,
            message: format!("Writing {}: {error}", self.path.display()),
            fix: Some(elsewhere(self.option)),
        })
    }
}

/// What to write in place of a file that cannot be.
fn elsewhere(option: &str) -> String {
    format!("{option} \"$(mktemp)\"")
}

impl Drop for ResultFile<'_> {
    fn drop(&mut self) {
        if self.empty {
            let _ = fs::remove_file(self.path);
        }
    }
}
