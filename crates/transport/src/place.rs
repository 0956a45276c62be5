//! A place among a connection's streams.

use std::sync::Arc;

use crate::state::Shared;

/// A place among the streams that the server allows. It is free again when this is dropped: a gRPC call is over when
/// its response is, or when nobody wants the response any more.
pub(crate) struct Place(Arc<Shared>);

impl Place {
    /// Waits for a place.
    ///
    /// # Errors
    /// Why the connection takes no more streams.
    pub(crate) async fn take(shared: Arc<Shared>) -> Result<Self, String> {
        match shared.quota.acquire().await {
            Ok(()) => Ok(Self(shared)),
            Err(_) => Err(shared.refusal()),
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.quota.release();
    }
}
