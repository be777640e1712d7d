//! The files of `--csv` and `--chart`.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use prezero_memory::Class;
use rustix::process::geteuid;

use crate::failure::{Failure, class_of_file};
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
        let chart = chart.map(|path| ResultFile::open("--chart", path));
        let chart = chart.transpose().and_then(|chart| {
            if let (Some(csv), Some(chart)) = (&csv, &chart) {
                csv.differs_from(chart)?;
            }
            Ok(chart)
        });
        let new = csv.iter().chain(chart.iter().flatten());
        new.filter(|file| file.new).for_each(ResultFile::remove);
        let chart = chart?;
        Ok(Self { csv, chart })
    }

    pub(super) fn write(
        self,
        csv: impl FnOnce(&mut Vec<u8>) -> csv::Result<()>,
        chart: impl FnOnce() -> Result<String, ChartError>,
    ) -> Result<(), Failure> {
        if let Some(file) = self.csv {
            let mut rows = Vec::new();
            let made = csv(&mut rows).map_err(io::Error::from);
            file.write(made.map(|()| rows))?;
        }
        let Some(file) = self.chart else {
            return Ok(());
        };
        let drawn = chart().map_err(io::Error::other);
        file.write(drawn.map(String::into_bytes))
    }
}

/// A file that is opened before minutes are spent on what goes into it. What is in it stays until there is
/// something to put in its place, and a new one has a name from then on only: a measurement that fails
/// or is killed leaves none behind.
struct ResultFile<'a> {
    option: &'static str,
    path: &'a Path,
    /// For a new one it only proved that there can be one.
    file: File,
    new: bool,
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
        let (file, new) = opened.map_err(|error| Failure {
            class: class_of_file(&error),
            message: format!("{} cannot be written: {error}", path.display()),
            fix: Some(elsewhere(option)),
        })?;
        Ok(Self {
            option,
            path,
            file,
            new,
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
    fn write(mut self, result: io::Result<Vec<u8>>) -> Result<(), Failure> {
        let written = result.and_then(|result| self.put(&result));
        written.map_err(|error| Failure {
            class: Class::Internal,
            message: format!("Writing {}: {error}", self.path.display()),
            fix: Some(elsewhere(self.option)),
        })
    }

    fn put(&mut self, result: &[u8]) -> io::Result<()> {
        if self.new {
            return replace(self.path, None, result);
        }
        match fs::symlink_metadata(self.path) {
            // It was removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return replace(self.path, None, result);
            }
            Ok(there)
                if there.is_file() && there.uid() == geteuid().as_raw() && there.nlink() == 1 =>
            {
                match replace(self.path, Some(&there), result) {
                    // Its directory may be closed to those who may write the file, and a file may be mounted.
                    Err(error) if is_in_place_only(error.kind()) => {}
                    replaced => return replaced,
                }
            }
            _ => {}
        }
        // Somebody else's, or what a link leads to, keeps its identity; a pipe or terminal has no length to set.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(result)
    }

    /// Takes the name of a new one away.
    fn remove(&self) {
        let _ = fs::remove_file(self.path);
    }
}

/// Puts a file with this result where another one may be, at once: nobody sees part of it, and where it does not fit the
/// other one stays. It has the mode and the group of that one; without one it is as files of this process are.
fn replace(path: &Path, old: Option<&Metadata>, result: &[u8]) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let mut made = tempfile::Builder::new()
        .prefix(".prezero-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent.unwrap_or(Path::new(".")))?;
    if let Some(old) = old {
        if made.as_file().metadata()?.gid() != old.gid() {
            fchown(made.as_file(), None, Some(old.gid()))?;
        }
        made.as_file().set_permissions(old.permissions())?;
    }
    made.write_all(result)?;
    made.persist(path).map_err(io::Error::from).map(drop)
}

/// Whether a file that cannot be replaced may still be written to.
fn is_in_place_only(why: ErrorKind) -> bool {
    matches!(why, ErrorKind::PermissionDenied | ErrorKind::ResourceBusy)
}

/// What to write in place of a file that cannot be.
fn elsewhere(option: &str) -> String {
    format!("{option} \"$(mktemp)\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_is_none_leaves_every_file_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let (old, new) = (dir.path().join("old.csv"), dir.path().join("new.svg"));
        fs::write(&old, "before").expect("writable");
        let open = || ResultFiles::open(Some(&old), Some(&new)).expect("writable");
        let files = open();
        assert!(!new.exists(), "a measurement that is killed leaves none");
        let failure = files.write(
            |_| Err(io::Error::other("no rows").into()),
            || Ok(String::new()),
        );
        assert_eq!(failure.expect_err("no rows").class, Class::Internal);
        let there = || fs::read_to_string(&old).expect("it is there");
        assert_eq!((there(), new.exists()), ("before".to_owned(), false));
        let failure = open().write(
            |rows| Ok(rows.write_all(b"a,b")?),
            || Err(ChartError::Empty),
        );
        assert_eq!(failure.expect_err("no chart").class, Class::Internal);
        assert_eq!((there(), new.exists()), ("a,b".to_owned(), false));
        let written = open().write(|rows| Ok(rows.write_all(b"c")?), || Ok("<svg>".to_owned()));
        assert!(written.is_ok());
        assert_eq!(there(), "c");
        assert_eq!(fs::read_to_string(&new).expect("written"), "<svg>");
    }

    #[test]
    fn a_file_is_replaced_at_once_with_its_mode_and_a_link_stays_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, link) = (dir.path().join("a.csv"), dir.path().join("link.csv"));
        fs::write(&file, "before, and longer").expect("writable");
        fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("it is ours");
        std::os::unix::fs::symlink(&file, &link).expect("it is ours");
        let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
        let write = |path: &Path, text: &str| {
            let files = ResultFiles::open(Some(path), None).expect("writable");
            let written = files.write(
                |rows| Ok(rows.write_all(text.as_bytes())?),
                || Ok(String::new()),
            );
            written.expect("writable");
            assert_eq!(fs::read_to_string(&file).expect("it is there"), text);
        };
        // Who has it open goes on reading what was there.
        let open = File::open(&file).expect("it is there");
        write(&file, "one");
        assert_eq!(
            io::read_to_string(open).expect("it is open"),
            "before, and longer"
        );
        let mode = fs::metadata(&file).expect("it is there").mode();
        assert_eq!(mode & 0o7777, 0o666);
        let before = inode(&file);
        write(&link, "two");
        assert_eq!(inode(&file), before);
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 2);
    }

    #[test]
    fn one_file_or_a_directory_is_refused_and_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let (one, again) = (dir.path().join("a"), dir.path().join("./a"));
        let failure = ResultFiles::open(Some(&one), Some(&again))
            .err()
            .expect("one file");
        assert_eq!(failure.class, Class::Usage);
        assert!(!one.exists());
        let failure = ResultFiles::open(Some(&one), Some(dir.path())).err();
        let failure = failure.expect("a directory");
        assert_eq!(failure.class, Class::Usage);
        assert!(
            failure.message.contains("cannot be written"),
            "{}",
            failure.message
        );
        assert!(!one.exists());
    }
}
