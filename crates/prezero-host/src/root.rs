//! Reading files below the root directory, and noting those that cannot be understood.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

use crate::pseudonyms::Pseudonyms;
use crate::recording::Recording;

/// A file that exists but could not be read or understood. The fact it holds is then missing from
/// the [`Host`](crate::Host), as if the file were absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, with the root directory in front, so that it can be opened.
    pub path: PathBuf,
    /// What is wrong with it: one sentence without a full stop.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// The directory below which all files are read, the problems met so far and, for a recording, what
/// was read.
#[derive(Debug)]
pub(crate) struct Root {
    dir: PathBuf,
    pub(crate) problems: Vec<Problem>,
    recording: Option<Recording>,
}

impl Root {
    pub(crate) fn new(dir: &Path) -> Self {
        let mut root = Self {
            dir: dir.into(),
            problems: Vec::new(),
            recording: None,
        };
        if !dir.is_dir() {
            root.problem("", "Is not a directory");
        }
        root
    }

    /// Like [`new`](Self::new), and keeps a copy of what is read.
    pub(crate) fn recording(dir: &Path) -> Self {
        Self {
            recording: Some(Recording::default()),
            ..Self::new(dir)
        }
    }

    /// What was read so far; nothing unless it is kept.
    pub(crate) fn into_recording(self) -> Recording {
        self.recording.unwrap_or_default()
    }

    /// Where a path of the described machine is on this one: always below the root directory.
    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.join(plain(path.as_ref()))
    }

    pub(crate) fn is_dir(&mut self, path: &str) -> bool {
        let is_dir = self.join(path).is_dir();
        if is_dir && let Some(recording) = &mut self.recording {
            recording.directory(path);
        }
        is_dir
    }

    /// The directory of this thread: the first thread's mask, cgroup and mounts, which `/proc/self`
    /// shows, may be different. Linux before 3.17, and most copies, only have `/proc/self`.
    pub(crate) fn own_directory(&mut self) -> &'static str {
        if self.is_dir("proc/thread-self") {
            "proc/thread-self"
        } else {
            "proc/self"
        }
    }

    /// The contents of a file; bytes that are not UTF-8 become U+FFFD.
    pub(crate) fn text(&mut self, path: impl AsRef<Path>) -> Option<String> {
        let text = self.unrecorded_text(&path)?;
        self.keep(path, &text);
        Some(text)
    }

    /// What `reduce` leaves of a file. Only that goes into a recording too, so that a reader cannot
    /// use what a recording lacks.
    pub(crate) fn reduced(
        &mut self,
        path: impl AsRef<Path>,
        reduce: impl FnOnce(&str) -> String,
    ) -> Option<String> {
        let text = reduce(&self.unrecorded_text(&path)?);
        self.keep(path, &text);
        Some(text)
    }

    /// The contents of a file of which the caller has to [`keep`](Self::keep) what it uses.
    pub(crate) fn unrecorded_text(&mut self, path: impl AsRef<Path>) -> Option<String> {
        let contents = read(&self.join(&path));
        self.present(path, contents)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Like [`text`](Self::text), for a file that ordinary users are not expected to read.
    pub(crate) fn text_if_readable(&mut self, path: &str) -> Option<String> {
        let bytes = read(&self.join(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.keep(path, &text);
        Some(text)
    }

    pub(crate) fn keep(&mut self, path: impl AsRef<Path>, text: &str) {
        if let Some(recording) = &mut self.recording {
            recording.file(path.as_ref(), text);
        }
    }

    /// Like [`keep`](Self::keep), for a text in which the paths have the names of the recording.
    pub(crate) fn keep_renamed(
        &mut self,
        path: &str,
        text: impl FnOnce(&mut Pseudonyms) -> String,
    ) {
        if let Some(recording) = &mut self.recording {
            let text = text(&mut recording.names);
            recording.file(Path::new(path), &text);
        }
    }

    /// Files of the cgroup `group`, shown by the mount at `point`, have another place in a recording.
    pub(crate) fn moved_when_recorded(&mut self, point: &Path, group: &Path) {
        if let Some(recording) = &mut self.recording {
            recording.cgroup(point, group);
        }
    }

    pub(crate) fn open(&mut self, path: &str) -> Option<File> {
        let file = File::open(self.join(path));
        self.present(path, file)
    }

    /// The names in a directory, in no particular order.
    pub(crate) fn names(&mut self, path: &str) -> Vec<String> {
        let names = fs::read_dir(self.join(path)).and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect()
        });
        let names: Vec<String> = self.present(path, names).unwrap_or_default();
        if let Some(recording) = &mut self.recording {
            for name in &names {
                recording.directory(&format!("{path}/{name}"));
            }
        }
        names
    }

    /// The text of a file as something else, or `None` after noting a problem.
    pub(crate) fn understand<T>(
        &mut self,
        path: impl AsRef<Path>,
        text: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let parsed = parse(text);
        if parsed.is_none() {
            let start: String = text.trim().chars().take(60).collect();
            self.problem(path, &format!("Holds {start:?}, which was not understood"));
        }
        parsed
    }

    /// A file that holds one number.
    pub(crate) fn number(&mut self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        self.understand(path, &text, |text| text.trim().parse().ok())
    }

    /// Like [`number`](Self::number), with a value for a kernel that lacks the file.
    pub(crate) fn number_or(&mut self, path: &str, absent: u64) -> Option<u64> {
        match self.text(path) {
            Some(text) => self.understand(path, &text, |text| text.trim().parse().ok()),
            None => Some(absent),
        }
    }

    pub(crate) fn problem(&mut self, path: impl AsRef<Path>, what: &str) {
        let path = self.join(path);
        self.problems.push(Problem {
            path,
            what: what.into(),
        });
    }

    /// What was read, or `None` for a file that is absent and, after noting it, one that is not.
    pub(crate) fn present<T>(&mut self, path: impl AsRef<Path>, read: io::Result<T>) -> Option<T> {
        match read {
            Ok(contents) => Some(contents),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                None
            }
            Err(error) => {
                self.problem(path, &format!("Could not be read: {error}"));
                None
            }
        }
    }
}

/// All of a file. Those of /proc and /sys do not know their length, and [`fs::read`] asks for it, begins with 32 bytes
/// and goes on in small steps: half of the system calls of a whole [`Host`](crate::Host).
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut contents = Vec::with_capacity(8 << 10);
    // Without the limit, read_to_end would ask for the length too.
    File::open(path)?
        .take(u64::MAX)
        .read_to_end(&mut contents)?;
    Ok(contents)
}

/// A path without a leading slash, and without `..`, which a mountinfo made up by hand may have.
pub(crate) fn plain(path: &Path) -> PathBuf {
    path.components()
        .filter(|component| matches!(component, Component::Normal(_)))
        .collect()
}

/// A temporary root directory with the given files.
#[cfg(test)]
pub(crate) fn with_files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, contents) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    dir
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_stay_below_the_root() {
        let dir = with_files(&[("etc/answer", "42\n")]);
        let mut root = Root::new(dir.path());
        assert_eq!(root.text("/etc/answer").as_deref(), Some("42\n"));
        assert_eq!(root.number("etc/answer"), Some(42));
        assert_eq!(root.number("/../etc/./answer"), Some(42));
    }

    #[test]
    fn an_absent_file_is_not_a_problem() {
        let dir = with_files(&[("file", "")]);
        let mut root = Root::new(dir.path());
        assert_eq!(root.number("absent"), None);
        assert_eq!(root.number("file/below"), None);
        assert_eq!(root.number_or("absent", 7), Some(7));
        assert_eq!(root.problems, []);
    }

    #[test]
    fn a_file_that_is_not_a_number_is_a_problem_and_not_a_default() {
        let dir = with_files(&[("file", "seven\n")]);
        let mut root = Root::new(dir.path());
        assert_eq!(root.number_or("file", 7), None);
        let [problem] = &root.problems[..] else {
            panic!("{:?}", root.problems)
        };
        assert_eq!(problem.path, dir.path().join("file"));
        assert_eq!(problem.what, r#"Holds "seven", which was not understood"#);
    }

    #[test]
    fn a_directory_in_place_of_a_file_is_a_problem() {
        let dir = with_files(&[("file/below", "")]);
        let mut root = Root::new(dir.path());
        assert_eq!(root.text("file"), None);
        assert_eq!(root.problems.len(), 1);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_read() {
        let dir = with_files(&[]);
        fs::write(dir.path().join("file"), b"a\xffb").unwrap();
        assert_eq!(
            Root::new(dir.path()).text("file").as_deref(),
            Some("a\u{fffd}b")
        );
    }

    #[test]
    fn a_root_that_does_not_exist_is_a_problem() {
        let dir = with_files(&[]);
        assert_eq!(Root::new(&dir.path().join("absent")).problems.len(), 1);
    }
}
