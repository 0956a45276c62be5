//! Name resolution.
//!
//! Input: a host and a port. Output: socket addresses and their time to live. A [`Resolve`] performs each query without
//! caching; its caller schedules the queries.

mod error;
#[cfg(feature = "dns")]
mod failure;
mod order;
#[cfg(feature = "dns")]
mod query;
#[cfg(feature = "dns")]
mod system;

use std::pin::Pin;

pub use error::{ResolveError, ResolveErrorKind};
pub use order::by_preference;
pub use proxyless_sans_io::values::DnsAnswer;
#[cfg(feature = "dns")]
pub use system::SystemResolver;

/// Resolves host names. Implement it to use a service other than DNS, or a list of names in tests.
pub trait Resolve: Send + Sync + 'static {
    /// Resolves `host`; the addresses have `port`. Dropping the future cancels the query.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a>;
}

/// The future of [`Resolve::resolve`].
pub type Resolving<'a> = Pin<Box<dyn Future<Output = Result<DnsAnswer, ResolveError>> + Send + 'a>>;
