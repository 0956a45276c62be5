//! The `:authority` of each address (gRFC A81), parsed once per update instead of once per pick.

use std::net::SocketAddr;

use http::HeaderValue;
use proxyless_balancer::api::Endpoints;

/// Host names of endpoints by address, sorted.
#[derive(Default, PartialEq)]
pub(super) struct Authorities(Box<[(SocketAddr, HeaderValue)]>);

impl Authorities {
    /// The host names of all endpoints. Names that are invalid header values are left out.
    pub(super) fn new(endpoints: &Endpoints) -> Self {
        let mut found = Vec::new();
        endpoints.flatten(&mut |endpoint| {
            let name = endpoint.hostname().filter(|name| !name.is_empty());
            if let Some(value) = name.and_then(|name| HeaderValue::from_str(name).ok()) {
                // A value that was cloned once is reference counted: later clones do not allocate.
                found.extend(endpoint.addresses.iter().map(|&address| (address, value.clone())));
            }
        });
        found.sort_by_key(|&(address, _)| address);
        found.dedup_by_key(|(address, _)| *address);
        Self(found.into())
    }

    /// Like [`Self::new`], given the last endpoints and their result: unchanged lists without host names are not
    /// visited.
    pub(super) fn after(endpoints: &Endpoints, last: Option<(&Endpoints, &Self)>) -> Self {
        let nameless = last.filter(|(_, authorities)| authorities.0.is_empty()).map(|(last, _)| last);
        if has_names(endpoints, nameless) { Self::new(endpoints) } else { Self::default() }
    }

    /// The host name of the endpoint at this address.
    pub(super) fn of(&self, address: SocketAddr) -> Option<&HeaderValue> {
        let place = self.0.binary_search_by_key(&address, |&(address, _)| address).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }
}

fn has_names(endpoints: &Endpoints, nameless: Option<&Endpoints>) -> bool {
    if nameless.is_some_and(|nameless| nameless.ptr_eq(endpoints)) {
        return false;
    }
    match endpoints {
        Endpoints::List(list) => list.iter().any(|endpoint| endpoint.hostname().is_some()),
        Endpoints::Groups(groups) => groups.iter().enumerate().any(|(place, group)| {
            let nameless = nameless.and_then(|nameless| nameless.groups().get(place));
            has_names(&group.endpoints, nameless.map(|group| &group.endpoints))
        }),
    }
}
