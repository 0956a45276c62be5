//! The files of a mesh: which they are, what they contain, and when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Source;

/// How often the files are looked at, and how long they must be unchanged before they are read.
const INTERVAL: Duration = Duration::from_millis(100);

/// Files and folders. Of a folder it is every file that ends with `.yaml`, `.yml` or `.json`, by name.
#[derive(Clone, Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
}

/// The state of the files, as far as it shows without reading them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(Vec<(PathBuf, Option<(SystemTime, u64)>)>);

impl Files {
    /// These files and folders.
    #[must_use]
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { paths: paths.into_iter().collect() }
    }

    /// Reads all files.
    ///
    /// # Errors
    /// If one of them cannot be read, or a folder has no such file. The message has the name.
    pub fn read(&self) -> Result<Vec<Source>, String> {
        let mut sources = Vec::new();
        for path in &self.paths {
            let found = list(path).map_err(|error| format!("{}: {error}", path.display()))?;
            if found.is_empty() {
                return Err(format!("{}: the folder has no .yaml, .yml or .json file", path.display()));
            }
            for file in found {
                let text = std::fs::read_to_string(&file).map_err(|error| match error.kind() {
                    io::ErrorKind::InvalidData => format!("{}: is not a text file (UTF-8)", file.display()),
                    _ => format!("{}: {error}", file.display()),
                })?;
                sources.push(Source::new(file.display().to_string(), text));
            }
        }
        Ok(sources)
    }

    /// The present state of the files.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut state = Vec::new();
        for path in &self.paths {
            for file in list(path).unwrap_or_else(|_| vec![path.clone()]) {
                let metadata = std::fs::metadata(&file).ok();
                let seen = metadata.and_then(|seen| Some((seen.modified().ok()?, seen.len())));
                state.push((file, seen));
            }
        }
        Fingerprint(state)
    }

    /// Waits until the state differs from this one and has settled. Editors write files in several steps.
    pub async fn changed(&self, since: &Fingerprint) -> Fingerprint {
        let mut last = since.clone();
        loop {
            tokio::time::sleep(INTERVAL).await;
            let now = self.fingerprint();
            if now == last && now != *since {
                return now;
            }
            last = now;
        }
    }
}

fn list(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let file = entry?.path();
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if ["yaml", "yml", "json"].contains(&extension.to_ascii_lowercase().as_str()) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}
