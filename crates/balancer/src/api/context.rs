//! What a policy may ask of the world around it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{Rng, Time};

use super::{
    ConnectivityState, Endpoint, Picker, PolicyEvent, RouteBuf, Signal, Subchannel, Timer, Trackers,
};

/// The world of one policy: its tree below the root is reached only through it.
///
/// Requests that carry a [`RouteBuf`] are passed up level by level; each level adds the index of the child that asked
/// ([`super::ChildCx`] does so). A policy itself always starts with an empty route.
pub trait Cx {
    /// The time of the event that is being handled.
    fn now(&self) -> Time;

    /// The channel's seeded randomness.
    fn rng(&mut self) -> &mut Rng;

    /// A subchannel for one address. Its first event follows after this call returns, unless it is IDLE.
    fn create_subchannel(&mut self, spec: SubchannelSpec) -> Subchannel;

    /// Asks an IDLE subchannel to connect; without effect in any other state.
    fn connect(&mut self, subchannel: &Subchannel);

    /// A timer that calls `on_timer(token)` after `delay`, unless the handle is dropped before.
    fn set_timer(&mut self, route: RouteBuf, delay: Duration, token: u32) -> Timer;

    /// A signal that pickers can raise; it then calls `on_signal(token)`.
    fn create_signal(&mut self, route: RouteBuf, token: u32) -> Signal;

    /// Has `on_signal` called for a signal of this policy's own, without a picker raising it, when all else that the
    /// running input brings has been delivered: what many events make necessary is then done once. To be called once
    /// until that call.
    fn defer(&mut self, signal: &Signal);

    /// Tells the parent this policy's state and picker. The last call before returning counts.
    fn publish(&mut self, state: ConnectivityState, picker: Arc<dyn Picker>);

    /// Has RPCs that wait pick again with the pickers that are there: something that the pickers look at has changed.
    fn bump(&mut self);

    /// Asks whoever resolved the endpoints to do so again.
    fn request_reresolution(&mut self);

    /// Tells people what the policy decided.
    fn record(&mut self, event: PolicyEvent);
}

/// What a subchannel is made from. Layers above may add trackers on its way to the root.
#[derive(Clone)]
pub struct SubchannelSpec {
    /// Where to connect.
    pub address: SocketAddr,
    /// The endpoint that the address belongs to.
    pub endpoint: Arc<Endpoint>,
    /// Who counts the calls on it; wrapper policies add theirs on the way up.
    pub trackers: Trackers,
    /// The way back down, built by the levels it passes.
    pub route: RouteBuf,
}

impl SubchannelSpec {
    /// A specification as a leaf policy starts it.
    #[must_use]
    pub fn new(address: SocketAddr, endpoint: Arc<Endpoint>) -> Self {
        Self { address, endpoint, trackers: Trackers::default(), route: RouteBuf::default() }
    }
}
