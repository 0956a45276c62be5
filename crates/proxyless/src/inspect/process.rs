//! The process itself.

use std::time::{Duration, SystemTime};

use proxyless_balancer::api::seconds;
use proxyless_sans_io::Time;
use serde::{Deserialize, Serialize};

use super::since_1970;
use crate::clock;

/// The process and its age.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessView {
    /// The name of the program.
    pub name: String,
    /// The process id.
    pub pid: u32,
    /// The version of this library.
    pub version: String,
    /// The time at which the process started to use the library.
    #[serde(with = "since_1970")]
    pub started: SystemTime,
    /// The time since then.
    #[serde(with = "seconds")]
    pub uptime: Duration,
}

impl ProcessView {
    /// Describes this process.
    #[must_use]
    pub fn current() -> Self {
        let program = std::env::current_exe().ok();
        let name = program.as_deref().and_then(std::path::Path::file_name);
        let now = clock::now();
        Self {
            name: name.map_or_else(|| "?".to_owned(), |name| name.to_string_lossy().into_owned()),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: clock::wall_time(Time::ZERO),
            uptime: now.since_epoch(),
        }
    }
}
