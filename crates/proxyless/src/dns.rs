//! Name resolution for LOGICAL_DNS clusters: [`Resolve`], the trait behind
//! [`XdsChannelBuilder::dns_resolver`](crate::XdsChannelBuilder::dns_resolver), and the system's DNS.
//!
//! `SystemResolver` needs the feature `dns`, which is on by default. Without it, and without a resolver of its own, a
//! channel reports every host name as unresolvable, with an error that says so.
//!
//! ```no_run
//! use proxyless::XdsChannel;
//! use proxyless::dns::{DnsAnswer, Resolve, Resolving};
//!
//! /// Every name is this machine.
//! struct Loopback;
//!
//! impl Resolve for Loopback {
//!     fn resolve<'a>(&'a self, _host: &'a str, port: u16) -> Resolving<'a> {
//!         let addresses = vec![([127, 0, 0, 1], port).into()];
//!         Box::pin(async move { Ok(DnsAnswer { addresses, ttl: None }) })
//!     }
//! }
//!
//! # fn example() -> Result<(), proxyless::BuildError> {
//! let channel = XdsChannel::builder("xds:///greeter.example").dns_resolver(Loopback).build()?;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

pub use proxyless_mesh::dns::DnsRefresh;
#[cfg(feature = "dns")]
pub use proxyless_transport::dns::SystemResolver;
pub use proxyless_transport::dns::{DnsAnswer, Resolve, ResolveError, ResolveErrorKind, Resolving};

/// The resolver of channels that are built without one.
#[cfg(feature = "dns")]
pub(crate) fn default_resolver() -> Arc<dyn Resolve> {
    Arc::new(SystemResolver::new())
}

/// The resolver of channels that are built without one: it fails.
#[cfg(not(feature = "dns"))]
pub(crate) fn default_resolver() -> Arc<dyn Resolve> {
    struct NoResolver;

    impl Resolve for NoResolver {
        fn resolve<'a>(&'a self, host: &'a str, _port: u16) -> Resolving<'a> {
            let why = "the channel has no DNS resolver: proxyless is built without its feature `dns`, \
                and XdsChannelBuilder::dns_resolver is not set";
            let error = ResolveError::new(host, ResolveErrorKind::Failed(why.into()));
            Box::pin(async move { Err(error) })
        }
    }

    Arc::new(NoResolver)
}
