//! The exchange between the session filter and xds_override_host for one RPC (gRFC A55, A61, A75).

use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_sans_io::Time;
use proxyless_sans_io::sync::atomic::{AtomicU64, Ordering};

/// The session of an RPC, present only if the session filter is enabled.
#[derive(Clone, Debug)]
pub struct OverrideHost {
    /// Input: the addresses in the cookie, in order; empty if there is no valid cookie.
    pub cookie_addresses: Arc<[SocketAddr]>,
    /// Input: the time, since pickers have no clock.
    pub now: Time,
    /// Output: the endpoint of the RPC, if it is known.
    pub actual: Option<ActualHost>,
    /// Input and output: the state of an RPC that waits for its host. Initially `None`; the caller passes the value of
    /// the previous pick of the same attempt.
    pub waiting: Option<HostWait>,
}

impl OverrideHost {
    /// The session of an RPC before its first pick.
    #[must_use]
    pub fn new(cookie_addresses: Arc<[SocketAddr]>, now: Time) -> Self {
        Self { cookie_addresses, now, actual: None, waiting: None }
    }
}

/// The number of failed connection attempts seen by one policy.
#[derive(Debug, Default)]
pub struct Failures(AtomicU64);

impl Failures {
    /// Counts a failure and returns its number.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// The state of an RPC that waits for its host: the number of failed attempts when the wait began.
///
/// The host may be CONNECTING again by the time the RPC picks again: this number tells that the attempt it waited for
/// has failed.
#[derive(Clone, Debug)]
pub struct HostWait {
    failures: Arc<Failures>,
    since: u64,
}

impl HostWait {
    /// Starts a wait.
    #[must_use]
    pub fn begin(failures: &Arc<Failures>) -> Self {
        // SeqCst, as in `next`: a failure that the RPC has not seen has a greater number.
        Self { since: failures.0.load(Ordering::SeqCst), failures: Arc::clone(failures) }
    }

    /// The number of failures before the wait, if the wait is for hosts of this policy.
    #[must_use]
    pub fn since(&self, failures: &Arc<Failures>) -> Option<u64> {
        Arc::ptr_eq(&self.failures, failures).then_some(self.since)
    }
}

/// The endpoint of an RPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActualHost {
    /// The address in use.
    pub address: SocketAddr,
    /// All addresses of the endpoint, including the one in use.
    pub addresses: Arc<[SocketAddr]>,
}

impl ActualHost {
    /// A61: the address list of the cookie: the address in use, then the others in order.
    pub fn address_list(&self) -> impl Iterator<Item = SocketAddr> {
        let others = self.addresses.iter().copied().filter(|&other| other != self.address);
        std::iter::once(self.address).chain(others)
    }
}
