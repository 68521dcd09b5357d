//! Files that appear whole or not at all, and hashes of their contents.

use std::fmt;
use std::path::{Path, PathBuf};

/// A file operation that failed.
#[derive(Debug)]
pub struct FileError {
    /// What was tried: `read`, `write`, ...
    pub action: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// Why it failed.
    pub source: std::io::Error,
}

impl FileError {
    pub(crate) fn new(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> FileError {
        let path = path.to_path_buf();
        move |source| FileError {
            action,
            path,
            source,
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot {} {}: {}",
            self.action,
            self.path.display(),
            self.source
        )
    }
}

impl std::error::Error for FileError {}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    std::fs::read(path).map_err(FileError::new("read", path))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    std::fs::write(path, bytes).map_err(FileError::new("write", path))
}

/// Moves a finished file to where others look for it; they see the old one or the new one.
pub(crate) fn publish(from: &Path, to: &Path) -> Result<(), FileError> {
    std::fs::rename(from, to).map_err(FileError::new("replace", to))
}

/// Makes `dir` an empty directory, whatever an interrupted build has left in it.
pub(crate) fn fresh_dir(dir: &Path) -> Result<(), FileError> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(FileError::new("empty", dir)(e));
        }
        _ => (),
    }
    std::fs::create_dir_all(dir).map_err(FileError::new("create", dir))
}

/// Hash for telling contents apart, fast even without optimisation: eight bytes per step.
pub(crate) fn content_hash(bytes: &[u8]) -> u64 {
    let step = |h: u64, w: u64| (h ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let h = words
        .iter()
        .fold(bytes.len() as u64, |h, w| step(h, u64::from_le_bytes(*w)));
    let h = rest.iter().fold(h, |h, b| step(h, u64::from(*b)));
    step(h, h >> 32)
}
