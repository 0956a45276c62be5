//! The events of a run with their times, as one number: runs of the same seed have the same number.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// Clones share the trace.
#[derive(Clone)]
pub(crate) struct Trace {
    start: Instant,
    hash: Arc<Mutex<u64>>,
}

impl Trace {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), hash: Arc::new(Mutex::new(0xcbf2_9ce4_8422_2325)) }
    }

    pub(crate) fn note(&self, what: &str) {
        let time = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut hash = self.hash.lock().unwrap_or_else(PoisonError::into_inner);
        for byte in time.to_be_bytes().into_iter().chain(what.bytes()) {
            // FNV-1a.
            *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if std::env::var_os("DRIVER_TRACE").is_some() {
            eprintln!("{:>12.6} {what}", self.start.elapsed().as_secs_f64());
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        *self.hash.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
