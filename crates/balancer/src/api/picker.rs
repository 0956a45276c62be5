//! Picking: the one thing a policy does on the data path.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use proxyless_sans_io::Rng;

use super::{OverrideHost, PickError, PickTarget, SignalRaiser};

/// Chooses the target of an RPC. Shared by all callers: takes no lock, allocates nothing, hands over to no task.
pub trait Picker: Send + Sync {
    /// Chooses for one attempt of one RPC.
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult;

    /// The error that every RPC gets, if all get the same: for people who look.
    fn failure(&self) -> Option<&Arc<PickError>> {
        None
    }
}

/// What a picker may look at.
pub struct PickArgs<'a> {
    /// The method's path, `/package.Service/Method`.
    pub path: &'a str,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// What routing and filters found out about the RPC.
    pub attributes: CallAttributes,
    /// Randomness of the caller's own.
    pub rng: &'a mut Rng,
}

/// Typed facts about one RPC that routes and filters give to pickers.
#[derive(Clone, Debug, Default)]
pub struct CallAttributes {
    /// The cluster that the route chose, as xds_cluster_manager numbers its children.
    pub cluster: u32,
    /// The hash of the request, for ring_hash (gRFC A42).
    pub hash: u64,
    /// Whether the route wants `:authority` rewritten to the endpoint's host name (gRFC A81).
    pub auto_host_rewrite: bool,
    /// The session that the RPC belongs to, where the session filter is at work (gRFC A55); pickers answer in it.
    pub override_host: Option<OverrideHost>,
}

/// What came of a pick.
#[derive(Debug)]
pub enum PickResult {
    /// Use this target.
    Complete(Pick),
    /// Nothing to be had yet: wait for the next picker.
    Queue,
    /// The RPC fails, unless it waits for ready.
    Fail(Arc<PickError>),
    /// The RPC fails even if it waits for ready, and is not retried.
    Drop(Arc<PickError>),
}

/// A completed pick. It counts nowhere until [`super::CallTicket::start`].
#[derive(Debug)]
pub struct Pick {
    /// The target.
    pub target: Arc<PickTarget>,
    /// A place in a limited number of calls, given back when the call ends or the pick is dropped.
    pub permit: Option<PickPermit>,
    /// The `:authority` to use instead of the channel's.
    pub authority: Option<HeaderValue>,
}

impl Pick {
    /// A pick of this target and nothing else.
    #[must_use]
    pub fn new(target: Arc<PickTarget>) -> Self {
        Self { target, permit: None, authority: None }
    }
}

/// A place in a limited number of concurrent calls (gRFC A32); dropping it gives the place back.
pub struct PickPermit(Arc<dyn PermitSource>);

/// What permits come from.
pub trait PermitSource: Send + Sync {
    /// One permit less is in use.
    fn release(&self);
}

impl PickPermit {
    /// A permit that was taken from `source`.
    #[must_use]
    pub fn new(source: Arc<dyn PermitSource>) -> Self {
        Self(source)
    }
}

impl Drop for PickPermit {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl fmt::Debug for PickPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PickPermit")
    }
}

/// Makes every RPC wait; raises a signal if it has one (an IDLE policy leaves IDLE by it).
#[derive(Default)]
pub struct QueuePicker {
    raiser: Option<Arc<SignalRaiser>>,
}

impl QueuePicker {
    /// A picker for a policy that is CONNECTING.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A picker for an IDLE policy: the first pick raises the signal.
    #[must_use]
    pub fn waking(raiser: Arc<SignalRaiser>) -> Arc<Self> {
        Arc::new(Self { raiser: Some(raiser) })
    }
}

impl Picker for QueuePicker {
    fn pick(&self, _: &mut PickArgs<'_>) -> PickResult {
        if let Some(raiser) = &self.raiser {
            raiser.raise();
        }
        PickResult::Queue
    }
}

/// Fails every RPC with the same error.
pub struct FailPicker(pub Arc<PickError>);

impl FailPicker {
    /// A picker for a policy in TRANSIENT_FAILURE.
    #[must_use]
    pub fn new(error: Arc<PickError>) -> Arc<Self> {
        Arc::new(Self(error))
    }
}

impl Picker for FailPicker {
    fn pick(&self, _: &mut PickArgs<'_>) -> PickResult {
        PickResult::Fail(Arc::clone(&self.0))
    }

    fn failure(&self) -> Option<&Arc<PickError>> {
        Some(&self.0)
    }
}
