//! What the session filter and xds_override_host tell each other about one RPC (gRFC A55, A61, A75).

use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_sans_io::Time;
use proxyless_sans_io::sync::atomic::{AtomicU64, Ordering};

/// The session of an RPC, present only where the session filter is at work.
#[derive(Clone, Debug)]
pub struct OverrideHost {
    /// In: the addresses that the cookie names, in their order; none if there is no usable cookie.
    pub cookie_addresses: Arc<[SocketAddr]>,
    /// In: the time, since pickers have no clock.
    pub now: Time,
    /// Out: the endpoint that the RPC goes to, if it is a known one.
    pub actual: Option<ActualHost>,
    /// In and out: since when the RPC waits for its host. Nothing at first; whoever picks again for the same attempt of the
    /// same RPC hands back what the pick before left here.
    pub waiting: Option<HostWait>,
}

impl OverrideHost {
    /// The session of an RPC that has not been picked for yet.
    #[must_use]
    pub fn new(cookie_addresses: Arc<[SocketAddr]>, now: Time) -> Self {
        Self { cookie_addresses, now, actual: None, waiting: None }
    }
}

/// Counts the failed connection attempts that one policy has seen.
#[derive(Debug, Default)]
pub struct Failures(AtomicU64);

impl Failures {
    /// One more; its number.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// That an RPC waits for its host, and how many attempts had failed when it began to.
///
/// A host may be CONNECTING again by the time that the RPC picks again: only by this it learns that the attempt which it
/// waited for has failed.
#[derive(Clone, Debug)]
pub struct HostWait {
    failures: Arc<Failures>,
    since: u64,
}

impl HostWait {
    /// An RPC begins to wait.
    #[must_use]
    pub fn begin(failures: &Arc<Failures>) -> Self {
        // SeqCst, as in `next`: a failure that the RPC has not seen has a greater number.
        Self { since: failures.0.load(Ordering::SeqCst), failures: Arc::clone(failures) }
    }

    /// The number of the last failure that the RPC did not wait for, if it waits for hosts of this policy.
    #[must_use]
    pub fn since(&self, failures: &Arc<Failures>) -> Option<u64> {
        Arc::ptr_eq(&self.failures, failures).then_some(self.since)
    }
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
