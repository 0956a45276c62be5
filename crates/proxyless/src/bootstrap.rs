//! The bootstrap: which management server a channel uses, and as which node (gRFC A27).
//!
//! A channel reads it from the environment unless it is given with
//! [`XdsChannelBuilder::bootstrap`](crate::XdsChannelBuilder::bootstrap), as JSON or from a builder:
//!
//! ```
//! use proxyless::bootstrap::Bootstrap;
//!
//! # fn main() -> Result<(), proxyless::bootstrap::BootstrapError> {
//! let written = Bootstrap::from_json(r#"{
//!     "xds_servers": [{ "server_uri": "127.0.0.1:18000", "channel_creds": [{ "type": "insecure" }] }],
//!     "node": { "id": "checkout-7" }
//! }"#)?;
//! let built = Bootstrap::builder().server("127.0.0.1:18000").node_id("checkout-7").build()?;
//! assert_eq!(written, built);
//! # Ok(())
//! # }
//! ```

pub use proxyless_xds::bootstrap::{
    Authority, Bootstrap, BootstrapBuilder, BootstrapError, BootstrapOptions, BootstrapProblem, CallCreds,
    CertificateFiles, CertificateProvider, ChannelCreds, IdentityFiles, RootsFile, ServerConfig,
    ServerFeatures, ServerTarget,
};
pub use proxyless_xds::resource::Locality;
