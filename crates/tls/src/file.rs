//! Reading of files that others write: bounded, and with errors that name the file.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The maximum size of a file. The largest bundles of public roots have a few hundred kilobytes.
const MAX_BYTES: u64 = 4 << 20;

/// A file that cannot be used, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// The reason. It never quotes the content.
    pub why: String,
}

impl FileError {
    pub(crate) fn new(file: &Path, why: impl Into<String>) -> Self {
        Self { file: file.to_owned(), why: why.into() }
    }
}

/// Reads a file that must be regular, not empty and not huge. Blocks.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, FileError> {
    let unreadable = |error| FileError::new(file, format!("cannot be read: {error}"));
    // Opening a pipe would block until somebody writes to it.
    if !fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(FileError::new(file, "is not a regular file"));
    }
    let mut content = Vec::new();
    let opened = File::open(file).map_err(unreadable)?;
    opened.take(MAX_BYTES + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(FileError::new(file, format!("has more than {MAX_BYTES} bytes, the limit")));
    }
    if content.trim_ascii().is_empty() {
        return Err(FileError::new(file, "is empty"));
    }
    Ok(content)
}
