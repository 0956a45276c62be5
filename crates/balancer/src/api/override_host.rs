//! What the session filter and xds_override_host tell each other about one RPC (gRFC A55, A61, A75).

use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_sans_io::Time;

/// The session of an RPC, present only where the session filter is at work.
#[derive(Clone, Debug)]
pub struct OverrideHost {
    /// In: the addresses that the cookie names, in their order; none if there is no usable cookie.
    pub cookie_addresses: Arc<[SocketAddr]>,
    /// In: the time, since pickers have no clock.
    pub now: Time,
    /// Out: the endpoint that the RPC goes to, if it is a known one.
    pub actual: Option<ActualHost>,
}

/// The endpoint that an RPC goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActualHost {
    /// The address that is in fact used.
    pub address: SocketAddr,
    /// All addresses of the endpoint, that one among them.
    pub addresses: Arc<[SocketAddr]>,
}

impl ActualHost {
    /// A61: the address list of the cookie: the one that is used, then the others in their order.
    pub fn address_list(&self) -> impl Iterator<Item = SocketAddr> {
        let others = self.addresses.iter().copied().filter(|&other| other != self.address);
        std::iter::once(self.address).chain(others)
    }
}
