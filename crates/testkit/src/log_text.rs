//! The text that a program logs, for tests that wait for it or search it.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::observed::{Observed, PATIENCE, TimedOut};

/// Collects written text. Clones share it, so that each can be the writer of a logger:
/// `tracing_subscriber::fmt().with_writer(move || log.clone())`.
#[derive(Clone)]
pub struct LogText(Arc<Observed<Vec<u8>>>);

impl Default for LogText {
    fn default() -> Self {
        Self(Arc::new(Observed::new(Vec::new())))
    }
}

impl LogText {
    /// The text so far.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.read(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Waits until the text contains this part.
    ///
    /// # Errors
    /// If that takes more than 10 seconds.
    pub async fn wait_for(&self, part: &str) -> Result<(), TimedOut> {
        let contains = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains(part).then_some(());
        let describe = |bytes: &Vec<u8>| format!("the text {:?}", String::from_utf8_lossy(bytes));
        self.0.wait(PATIENCE, format!("{part:?} in the log"), contains, describe).await
    }
}

impl io::Write for LogText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(|text| text.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for LogText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogText").field(&self.text()).finish()
    }
}
