//! Host names to addresses.
//!
//! In: a host and a port. Out: socket addresses and how long they are good for. When to ask, and how often, is not
//! decided here: a [`Resolve`] answers each question afresh, and its caller spaces the questions.

mod error;
mod order;
mod query;
mod system;

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

pub use error::{ResolveError, ResolveErrorKind};
pub use order::by_preference;
pub use system::SystemResolver;

/// Resolves host names. Bring your own to use another service than DNS, or a test's list of names.
pub trait Resolve: Send + Sync + 'static {
    /// Looks `host` up; the addresses shall have `port`. Dropping the future gives up.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a>;
}

/// What [`Resolve::resolve`] returns.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = Result<Answer, ResolveError>> + Send + 'a>>;

/// What a host name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The addresses, the preferred ones first.
    pub addresses: Vec<SocketAddr>,
    /// How long they are good for, if known.
    pub ttl: Option<Duration>,
}
