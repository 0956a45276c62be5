//! The parts of endpoints that few have.

use std::net::SocketAddr;
use std::sync::Arc;

/// The parts of an endpoint that few have. They are apart from the endpoint, because there may be very many of those.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointExtras {
    /// The host name (gRFC A81).
    pub hostname: Option<Arc<str>>,
    /// The hash key (gRFC A76); ring_hash uses the first address if there is none.
    pub hash_key: Option<Arc<str>>,
    /// The proxy that connections to the endpoint go through (gRFC A86).
    pub proxy: Option<Arc<SocketAddr>>,
}

impl EndpointExtras {
    /// The extras of an endpoint that only has a host name.
    #[must_use]
    pub fn named(hostname: impl Into<Arc<str>>) -> Option<Arc<Self>> {
        Self { hostname: Some(hostname.into()), ..Self::default() }.shared()
    }

    /// The extras for an endpoint; `None` if there are none.
    #[must_use]
    pub fn shared(self) -> Option<Arc<Self>> {
        let Self { hostname, hash_key, proxy } = &self;
        let exist = hostname.is_some() || hash_key.is_some() || proxy.is_some();
        exist.then(|| Arc::new(self))
    }
}
