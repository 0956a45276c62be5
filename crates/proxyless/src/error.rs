//! Why a channel could not be made.

use proxyless_xds::TargetError;
use proxyless_xds::bootstrap::BootstrapError;

/// Why [`XdsChannel::connect`](crate::XdsChannel::connect) failed. What goes wrong later is the status of RPCs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The target is not an xds target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The bootstrap is missing or invalid.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The caller is not inside a tokio runtime, where the channel's tasks would run.
    #[error("an XdsChannel must be made inside a tokio runtime")]
    NoRuntime,
}
