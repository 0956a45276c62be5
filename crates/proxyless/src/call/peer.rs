//! The backend that answered.

use std::fmt;
use std::net::SocketAddr;

/// The address of the backend that answered an RPC, as an extension of its response.
///
/// ```
/// use proxyless::PeerAddress;
///
/// fn log_backend<T>(response: &tonic::Response<T>) {
///     if let Some(peer) = response.extensions().get::<PeerAddress>() {
///         println!("answered by {peer}");
///     }
/// }
/// ```
///
/// If an RPC was retried, this is the backend of the last attempt. Error responses carry it too if a backend was
/// chosen. tonic converts those to a [`tonic::Status`], which has no extensions, so only layers between the client and
/// the channel see it; errors of the channel itself name the address in their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress(pub(super) SocketAddr);

impl PeerAddress {
    /// The address.
    #[must_use]
    pub fn address(self) -> SocketAddr {
        self.0
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
