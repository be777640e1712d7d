//! Where the guest's serial port writes to.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use prezero_memory::Class;

use crate::cli::RunArgs;
use crate::failure::Failure;

/// Output of the guest. What cannot be written is lost: the guest goes on, and the user is told at the end.
pub(super) struct Serial {
    to: RefCell<Sink>,
    failed: RefCell<Option<io::Error>>,
    /// Whether the last line has no end yet.
    open_line: RefCell<bool>,
}

enum Sink {
    Stdout,
    /// Where stdout is for the report.
    Stderr,
    File(String, File),
}

impl Serial {
    /// Opens the file that was asked for.
    pub(super) fn open(args: &RunArgs) -> Result<Self, Failure> {
        let to = match &args.linux.serial {
            Some(path) => Sink::File(path.display().to_string(), create(path)?),
            None if args.json => Sink::Stderr,
            None => Sink::Stdout,
        };
        Ok(Self {
            to: RefCell::new(to),
            failed: RefCell::default(),
            open_line: RefCell::default(),
        })
    }

    /// Whether it is a file, which nobody types into.
    pub(super) fn is_file(&self) -> bool {
        matches!(*self.to.borrow(), Sink::File(..))
    }

    pub(super) fn write(&self, bytes: &[u8]) {
        if self.failed.borrow().is_some() {
            return;
        }
        if let Some(last) = bytes.last() {
            *self.open_line.borrow_mut() = *last != b'\n';
        }
        let all = |to: &mut dyn Write| to.write_all(bytes).and_then(|()| to.flush());
        let written = match &mut *self.to.borrow_mut() {
            Sink::Stdout => all(&mut io::stdout().lock()),
            Sink::Stderr => all(&mut io::stderr().lock()),
            Sink::File(_, file) => all(file),
        };
        *self.failed.borrow_mut() = written.err();
    }

    /// Ends the guest's last line, so that what comes next has one of its own. Returns what the user should know.
    pub(super) fn end(&self) -> Option<String> {
        if *self.open_line.borrow() && !self.is_file() {
            self.write(b"\n");
        }
        let failed = self.failed.borrow();
        failed.as_ref().map(|error| {
            let to = match &*self.to.borrow() {
                Sink::Stdout => "stdout",
                Sink::Stderr => "stderr",
                Sink::File(path, _) => {
                    return format!("Writing the guest's console to {path}: {error}");
                }
            };
            format!("Writing the guest's console to {to}: {error}")
        })
    }
}

fn create(path: &Path) -> Result<File, Failure> {
    let refused = |class, why: &str| Failure {
        class,
        message: format!("{} cannot take the guest's console: {why}", path.display()),
        fix: Some("--serial \"$(mktemp)\"".to_owned()),
    };
    // Opening one waits for a reader, and cannot be interrupted.
    if fs::metadata(path).is_ok_and(|data| data.file_type().is_fifo()) {
        return Err(refused(Class::Usage, "it is a named pipe"));
    }
    File::create(path).map_err(|error| {
        let class = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Class::Host,
            ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
                Class::Usage
            }
            _ => Class::Internal,
        };
        refused(class, &error.to_string())
    })
}
