//! Picking: the part of a policy that runs on the data path.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use proxyless_sans_io::Rng;
use proxyless_sans_io::metrics::PlaceId;

use super::{OverrideHost, PickError, SignalRaiser, TargetRef};

/// Picks the target of an RPC. Shared by all callers: hands off to no task, takes no lock and does not allocate, except for the
/// stripes of a thread at its first pick.
pub trait Picker: Send + Sync {
    /// Picks a target for one attempt of an RPC.
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult;

    /// The error that every RPC fails with, if they all do; for inspection.
    fn failure(&self) -> Option<&Arc<PickError>> {
        None
    }
}

/// The input of a pick.
pub struct PickArgs<'a> {
    /// The method's path, `/package.Service/Method`, for custom pickers.
    pub path: &'a str,
    /// The request's headers, for custom pickers.
    pub headers: &'a HeaderMap,
    /// Attributes of the RPC from routing and filters.
    pub attributes: CallAttributes,
    /// The caller's random number generator.
    pub rng: &'a mut Rng,
}

/// Typed attributes of an RPC that routes and filters pass to pickers.
#[derive(Clone, Debug, Default)]
pub struct CallAttributes {
    /// The cluster that the route chose.
    pub cluster: ClusterId,
    /// The hash of the request, for ring_hash (gRFC A42).
    pub hash: u64,
    /// Whether the route rewrites `:authority` to the endpoint's host name (gRFC A81).
    pub auto_host_rewrite: bool,
    /// The session of the RPC, if the session filter is enabled (gRFC A55); pickers set its outputs.
    pub override_host: Option<OverrideHost>,
    /// The purpose of the pick.
    pub purpose: PickPurpose,
    /// Set by pickers, whatever the result: the leaf cluster that was asked, and the locality of a completed pick, for
    /// metrics (gRFC A89).
    pub place: PlaceId,
}

/// The purpose of a pick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PickPurpose {
    /// An RPC follows.
    #[default]
    Call,
    /// The pick is made for inspection only: it takes no permit, and no drop or use of a session is counted. It does take a
    /// turn of policies that take turns, and makes an IDLE policy connect.
    Explanation,
}

/// The id of a cluster in one channel's xds_cluster_manager. Ids are small, since pickers index by them, and are reused
/// once their cluster is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u32);

/// The result of a pick.
#[derive(Debug)]
pub enum PickResult {
    /// Use this target.
    Complete(Pick),
    /// No target is available yet: wait for the next picker.
    Queue,
    /// The RPC fails, unless it is wait-for-ready.
    Fail(Arc<PickError>),
    /// The RPC fails even if it is wait-for-ready, and is not retried.
    Drop(Arc<PickError>),
}

/// A completed pick. It is not counted until [`super::CallTicket::start`].
#[derive(Debug)]
pub struct Pick {
    /// The target.
    pub target: TargetRef,
    /// A permit of the circuit breaker, released when the call ends or the pick is dropped.
    pub permit: Option<PickPermit>,
    /// The `:authority` to use instead of the channel's.
    pub authority: Option<HeaderValue>,
}

impl Pick {
    /// A pick of this target, without permit and authority.
    #[must_use]
    pub fn new(target: impl Into<TargetRef>) -> Self {
        Self { target: target.into(), permit: None, authority: None }
    }
}

/// A permit for one of a limited number of concurrent calls (gRFC A32), released on drop.
pub struct PickPermit(Arc<dyn PermitSource>);

/// The source of permits.
pub trait PermitSource: Send + Sync {
    /// Releases a permit.
    fn release(&self);
}

impl PickPermit {
    /// Creates a permit taken from `source`.
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

/// Queues every RPC; raises a signal if it has one (which makes an IDLE policy leave IDLE).
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
