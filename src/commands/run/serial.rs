//! Where the guest's serial port writes to: judged first, opened once everything else that could be refused was, and
//! emptied when the guest starts.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use prezero_memory::{Cancel, Class};

use super::written::Written;
use crate::cli::RunArgs;
use crate::failure::{Failure, class_of_file};

/// The far end of the guest's serial port.
pub(super) enum Serial {
    Stdout,
    /// Where stdout is for the report.
    Stderr,
    File(PathBuf, Option<File>),
}

impl Serial {
    /// Judges the file that was asked for, without a change to it.
    pub(super) fn of(args: &RunArgs) -> Result<Self, Failure> {
        let linux = &args.linux;
        let Some(path) = &linux.serial else {
            return Ok(match args.json {
                true => Self::Stderr,
                false => Self::Stdout,
            });
        };
        match fs::metadata(path) {
            Ok(data) => judge(path, &data, linux.kernel.iter().chain(&linux.initramfs))?,
            Err(_) => {
                let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
                let parent = fs::metadata(parent.unwrap_or(Path::new(".")));
                parent.map_err(|error| failed(path, &error))?;
            }
        }
        Ok(Self::File(path.clone(), None))
    }

    /// Opens the file, which keeps what is in it, and locks it against other runs.
    pub(super) fn open(&mut self) -> Result<(), Failure> {
        let Self::File(path, file @ None) = self else {
            return Ok(());
        };
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let opened = options.open(&*path).map_err(|error| failed(path, &error))?;
        match opened.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let why = "it is the console of another run, or locked by another program";
                return Err(refused(path, Class::Shortage, why));
            }
            // Not every file system has locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        *file = Some(opened);
        Ok(())
    }

    /// Whether it is a file, which nobody types into.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File(..))
    }

    /// Empties the file, and begins to write. What cannot be written any more after `cancel` is lost.
    pub(super) fn start(self, cancel: &Cancel) -> Result<Written, Failure> {
        let is_file = self.is_file();
        let (name, to) = match self {
            Self::Stdout => ("stdout".to_owned(), duplicate(&io::stdout())),
            Self::Stderr => ("stderr".to_owned(), duplicate(&io::stderr())),
            Self::File(path, file) => {
                let file = file.map_or_else(|| Err(ErrorKind::NotFound.into()), empty);
                (path.display().to_string(), file)
            }
        };
        let written = to.and_then(|to| Written::start(name.clone(), to, !is_file, cancel.flag()));
        written.map_err(|error| failed(Path::new(&name), &error))
    }
}

/// The same open file, for a thread that waits alone where it takes nothing.
fn duplicate(to: &impl AsFd) -> io::Result<File> {
    Ok(to.as_fd().try_clone_to_owned()?.into())
}

fn empty(file: File) -> io::Result<File> {
    // Devices have no length.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Refuses a file that cannot take a console, or has something else to do; `inputs` are the guest's own files.
fn judge<'a>(
    path: &Path,
    data: &Metadata,
    inputs: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let kind = data.file_type();
    // Opening one waits for a reader, and cannot be interrupted.
    if kind.is_fifo() {
        return Err(refused(path, Class::Usage, "it is a named pipe"));
    }
    if kind.is_dir() {
        return Err(refused(path, Class::Usage, "it is a directory"));
    }
    let same = |input: &&PathBuf| {
        fs::metadata(input).is_ok_and(|of| (of.dev(), of.ino()) == (data.dev(), data.ino()))
    };
    match inputs.into_iter().find(same) {
        Some(input) => {
            let why = format!("it is {}, which the guest is started from", input.display());
            Err(refused(path, Class::Usage, &why))
        }
        None => Ok(()),
    }
}

fn refused(path: &Path, class: Class, why: &str) -> Failure {
    Failure {
        class,
        message: format!("{} cannot take the guest's console: {why}", path.display()),
        fix: Some("--serial \"$(mktemp)\"".to_owned()),
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    refused(path, class_of_file(error), &error.to_string())
}
