//! The process itself.

use serde::{Deserialize, Serialize};

use crate::clock;

/// The process and its age.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// The name of the program.
    pub name: String,
    /// The process id.
    pub pid: u32,
    /// The version of this library.
    pub version: String,
    /// The time at which the process started to use the library, in seconds since 1970.
    pub started: f64,
    /// The time since then, in seconds.
    pub uptime: f64,
}

impl ProcessReport {
    /// A report of this process.
    #[must_use]
    pub fn current() -> Self {
        let program = std::env::current_exe().ok();
        let name = program.as_deref().and_then(std::path::Path::file_name);
        let now = clock::now();
        Self {
            name: name.map_or_else(|| "?".to_owned(), |name| name.to_string_lossy().into_owned()),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: clock::unix_seconds(proxyless_sans_io::Time::ZERO),
            uptime: now.since_epoch().as_secs_f64(),
        }
    }
}
