//! The operations available to a policy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::metrics::{Meter, PlaceId};
use proxyless_sans_io::{Rng, Time};

use super::{
    ConnectionLimit, ConnectivityState, Endpoint, Picker, PolicyEvent, Signal, SubchannelHandle, Timer,
    Trackers, TreePathBuf,
};

/// The context of one policy, its only connection to the rest of the tree.
///
/// Requests that carry a [`TreePathBuf`] are passed up level by level; each level adds the index of the requesting
/// child ([`super::ChildCx`] does this). A policy always starts with an empty path.
pub trait Cx {
    /// The time of the event that is being handled.
    fn now(&self) -> Time;

    /// The channel's seeded randomness.
    fn rng(&mut self) -> &mut Rng;

    /// Creates a subchannel for one address. Its first event follows after this call returns, unless it is IDLE.
    fn create_subchannel(&mut self, spec: SubchannelSpec) -> SubchannelHandle;

    /// Makes an IDLE subchannel connect; no effect in any other state.
    fn connect(&mut self, subchannel: &SubchannelHandle);

    /// Requests out-of-band load reports (gRFC A51) of a subchannel at this interval, as `TreeEvent::Load` along the
    /// subchannel's path while it is READY; `None` ends the request. Each holder of a handle has its own request.
    fn watch_load(&mut self, subchannel: &SubchannelHandle, interval: Option<Duration>);

    /// A [`ConnectionLimit`] was changed: subchannels may need more connections (gRFC A105).
    fn connection_limits_changed(&mut self);

    /// Sets a timer that delivers `TreeEvent::Timer(tag)` after `delay`, unless the handle is dropped first.
    fn set_timer(&mut self, path: TreePathBuf, delay: Duration, tag: u32) -> Timer;

    /// Creates a signal for pickers to raise; it delivers `TreeEvent::Signal(tag)`.
    fn create_signal(&mut self, path: TreePathBuf, tag: u32) -> Signal;

    /// Delivers a signal of this policy after all other events of the current input have been delivered, so that work
    /// caused by many events is done once. May be called once until then.
    fn defer(&mut self, signal: &Signal);

    /// Publishes this policy's state and picker to the parent. The last call before returning applies.
    fn publish(&mut self, state: ConnectivityState, picker: Arc<dyn Picker>);

    /// Makes queued RPCs pick again with the current pickers, because state that the pickers read has changed.
    fn bump(&mut self);

    /// Requests that the endpoints be resolved again.
    fn request_reresolution(&mut self);

    /// Records a decision of the policy for inspection.
    fn record(&mut self, event: PolicyEvent);

    /// The channel's metrics.
    fn meter(&self) -> &Meter;
}

/// The specification of a subchannel. Layers above may add trackers on its way to the root.
#[derive(Clone)]
pub struct SubchannelSpec {
    /// The address to connect to.
    pub address: SocketAddr,
    /// The endpoint that the address belongs to.
    pub endpoint: Arc<Endpoint>,
    /// The trackers of calls; wrapper policies add theirs on the way up.
    pub trackers: Trackers,
    /// The number of connections that it may have, if a policy sets it (gRFC A105).
    pub connection_limit: Option<ConnectionLimit>,
    /// The cluster and the locality, for metrics; xds_cluster_impl sets it.
    pub place: PlaceId,
    /// The path back down, built by each level on the way up.
    pub path: TreePathBuf,
}

impl SubchannelSpec {
    /// A specification as a leaf policy creates it.
    #[must_use]
    pub fn new(address: SocketAddr, endpoint: Arc<Endpoint>) -> Self {
        Self {
            address,
            endpoint,
            trackers: Trackers::default(),
            connection_limit: None,
            place: PlaceId::default(),
            path: TreePathBuf::default(),
        }
    }
}
