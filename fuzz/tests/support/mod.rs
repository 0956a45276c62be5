//! The files of this crate.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// A file or folder of this crate.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The seeds of a target, by name.
pub(crate) fn corpus(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    for entry in fs::read_dir(path("corpus").join(target))? {
        let entry = entry?;
        seeds.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
    }
    seeds.sort();
    Ok(seeds)
}
