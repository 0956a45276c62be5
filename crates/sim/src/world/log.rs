//! The log of a run: a hash of every line, and the lines themselves on request.

use std::fmt::{self, Write as _};

use proxyless_sans_io::Time;

/// The events of a run.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Default for Log {
    fn default() -> Self {
        // The offset basis of FNV-1a.
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: None }
    }
}

impl Log {
    pub(crate) fn keep_lines(&mut self) {
        self.lines.get_or_insert_default();
    }

    pub(crate) fn line(&mut self, now: Time, what: fmt::Arguments<'_>) {
        // Most logs are never read: lines are hashed as they are written, without building a string.
        let mut hash = Fnv(self.hash);
        hash.add(&now.since_epoch().as_nanos().to_le_bytes());
        // Hashing does not fail; a Debug implementation that fails does so in every run.
        let _ = hash.write_fmt(what);
        self.hash = hash.0;
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{now:?} {what}"));
        }
    }

    /// Equal for equal runs (FNV-1a).
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines, if they were kept.
    pub(crate) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}

/// FNV-1a of the written text.
struct Fnv(u64);

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}
