//! The log of a run: a hash of every line, and the lines themselves if someone wants to read them.

use std::fmt;

use proxyless_sans_io::Time;

/// What happened in a world.
#[derive(Clone, Debug)]
pub struct Log {
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
        let line = format!("{now:?} {what}");
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }

    /// Equal for two runs that did the same (FNV-1a).
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// What happened, if that was kept.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}
