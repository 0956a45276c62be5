//! Where the bootstrap comes from.

use proxyless_xds::bootstrap::{Bootstrap, BootstrapError};

/// The bootstrap that the environment names, as [`XdsChannel::connect`](crate::XdsChannel::connect) uses it: the file
/// whose path is in `GRPC_XDS_BOOTSTRAP`, else the text in `GRPC_XDS_BOOTSTRAP_CONFIG`.
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
/// If there is none, or it is not valid; every problem is listed.
pub fn bootstrap_from_env() -> Result<Bootstrap, BootstrapError> {
    Bootstrap::from_env(|name| std::env::var(name).ok(), |path| std::fs::read_to_string(path))
}
