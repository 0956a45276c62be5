//! The `:authority` that each address asks for (gRFC A81), parsed once per update instead of once per pick.

use std::net::SocketAddr;

use http::HeaderValue;
use proxyless_balancer::api::Endpoints;

/// Host names of endpoints by address, sorted.
#[derive(Default, PartialEq)]
pub(super) struct Authorities(Box<[(SocketAddr, HeaderValue)]>);

impl Authorities {
    /// The host names of all endpoints that have one. Names that cannot be a header's value are left out.
    pub(super) fn new(endpoints: &Endpoints) -> Self {
        let mut found = Vec::new();
        endpoints.flatten(&mut |endpoint| {
            let name = endpoint.hostname.as_deref().filter(|name| !name.is_empty());
            if let Some(value) = name.and_then(|name| HeaderValue::from_str(name).ok()) {
                // A value that was cloned once is reference counted: from then on a clone allocates nothing.
                found.extend(endpoint.addresses.iter().map(|&address| (address, value.clone())));
            }
        });
        found.sort_by_key(|&(address, _)| address);
        found.dedup_by_key(|(address, _)| *address);
        Self(found.into())
    }

    /// The host name of the endpoint at this address.
    pub(super) fn of(&self, address: SocketAddr) -> Option<&HeaderValue> {
        let place = self.0.binary_search_by_key(&address, |&(address, _)| address).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }
}
