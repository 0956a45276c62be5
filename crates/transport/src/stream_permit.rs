//! The permit for one stream of a connection.

use std::sync::Arc;

use crate::quota::QuotaClosed;
use crate::state::Shared;

/// A permit for one of the streams that the server allows. It is released on drop: a gRPC call is over when its
/// response is, or when the response is dropped.
pub(crate) struct StreamPermit {
    shared: Arc<Shared>,
    /// The stream that uses the permit, while it may have to be cancelled.
    stream: Option<u32>,
}

impl StreamPermit {
    /// Waits for a permit of this connection, or of another one in the same line.
    ///
    /// # Errors
    /// If the connection takes no more streams.
    pub(crate) async fn take(shared: Arc<Shared>) -> Result<Self, String> {
        if shared.quota.try_acquire() {
            return Ok(Self { shared, stream: None });
        }
        match shared.quota.wait().await {
            Ok(shared) => Ok(Self { shared, stream: None }),
            Err(QuotaClosed) => Err(shared.refusal()),
        }
    }

    /// A stream has started.
    pub(crate) fn begin(&mut self, stream: u32) {
        self.stream = Some(stream);
    }

    /// The stream has ended.
    pub(crate) fn end(&mut self) {
        self.stream = None;
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        match self.stream {
            Some(stream) => self.shared.quota.abandon(stream),
            None => self.shared.quota.release(),
        }
    }
}
