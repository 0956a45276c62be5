//! Errors in building a channel.

use proxyless_mesh::policies::custom::RegistryError;
use proxyless_xds::TargetError;
use proxyless_xds::bootstrap::BootstrapError;

/// The error of [`XdsChannel::new`](crate::XdsChannel::new) and
/// [`XdsChannelBuilder::build`](crate::XdsChannelBuilder::build). Later problems are reported as the status of RPCs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The target is not an xds target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The bootstrap is missing or invalid.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A load balancing policy could not be registered.
    #[error(transparent)]
    Policies(#[from] RegistryError),
    /// The caller is not inside a tokio runtime, which the channel's tasks need.
    #[error("an XdsChannel must be built inside a tokio runtime")]
    NoRuntime,
}
