//! The bootstrap from the environment.

use proxyless_xds::bootstrap::{Bootstrap, BootstrapError};

/// Reads the bootstrap from the environment, as [`XdsChannel::connect`](crate::XdsChannel::connect) does: the file
/// named by `GRPC_XDS_BOOTSTRAP`, or else the text in `GRPC_XDS_BOOTSTRAP_CONFIG`.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let bootstrap = proxyless::bootstrap_from_env()?;
/// println!("the management server is {}", bootstrap.server().uri);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If there is none, or it is invalid; every problem is listed.
pub fn bootstrap_from_env() -> Result<Bootstrap, BootstrapError> {
    Bootstrap::from_env()
}
