//! A document that a command reads: what another one printed with `--json`, in a file, a pipe or standard input.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use prezero_memory::{ByteSize, Class};

use crate::failure::{Failure, class_of_file};

/// A document of hundreds of rows with hundreds of samples is a tenth of it.
const LARGEST: u64 = 16 << 20;

/// What is there, as far as it can be a document. `fix` is how one is made.
pub(super) fn read(path: &Path, fix: &str) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut text));
    read.map_err(|error| Failure {
        class: class_of_file(&error),
        message: format!("{} cannot be read: {error}", path.display()),
        fix: Some(match error.kind() {
            ErrorKind::NotFound => fix.to_owned(),
            _ => format!("ls -ld {}", path.display()),
        }),
    })?;
    if text.len() as u64 > LARGEST {
        return Err(Failure {
            class: Class::Usage,
            message: format!(
                "{} is larger than {}, which no document of a measurement is",
                path.display(),
                ByteSize(LARGEST)
            ),
            fix: Some(fix.to_owned()),
        });
    }
    Ok(text)
}
