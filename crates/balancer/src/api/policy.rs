//! The policy itself, and what it is told.

use std::any::Any;
use std::sync::Arc;

use proxyless_sans_io::Time;

use super::{
    ChildIndex, ConfigError, ConnectivityState, Cx, Endpoints, Id, PickError, PolicyConfig, PolicyNode,
};

/// A load balancing policy: decides which connections to hold and which of them an RPC gets.
///
/// Every method may call `cx.publish`; `update` must leave something published (gRFC A31: a new configuration and
/// its picker come in the same step).
pub trait Policy: Send {
    /// Takes a new configuration and endpoints.
    ///
    /// # Errors
    /// If the policy cannot use it; it then goes on with what it had, or, if it had nothing, publishes
    /// TRANSIENT_FAILURE.
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError>;

    /// A subchannel of this policy or of a descendant changed its state.
    fn on_subchannel(&mut self, route: Route<'_>, event: &SubchannelEvent, cx: &mut dyn Cx);

    /// A timer of this policy or of a descendant fired. `token` is what it was set with.
    fn on_timer(&mut self, route: Route<'_>, token: u32, cx: &mut dyn Cx);

    /// A picker raised a signal of this policy or of a descendant.
    fn on_signal(&mut self, route: Route<'_>, token: u32, cx: &mut dyn Cx);

    /// Leaves IDLE: connects if it would otherwise wait for an RPC.
    fn exit_idle(&mut self, cx: &mut dyn Cx);

    /// What there is to see: children, endpoints and counters. [`Child::describe`](super::Child::describe) adds what the
    /// parent knows: name, state, configuration. A policy with children or endpoints must say so here, or its part of the
    /// tree cannot be seen.
    fn describe(&self, _now: Time) -> PolicyNode {
        PolicyNode::default()
    }
}

/// What a policy is updated with. Cheap to clone: everything in it is shared.
#[derive(Clone)]
pub struct Update {
    /// The policy's configuration.
    pub config: Arc<dyn PolicyConfig>,
    /// The endpoints below it.
    pub endpoints: Endpoints,
    /// Why endpoints are missing, for the error of RPCs that fail for it (A74).
    pub resolution_note: Option<Arc<str>>,
    /// The configuration of the whole channel (`XdsConfig`), for the policies that know its type.
    pub shared: Option<Arc<dyn Any + Send + Sync>>,
}

impl Update {
    /// An update without a note and without shared data.
    #[must_use]
    pub fn new(config: Arc<dyn PolicyConfig>, endpoints: Endpoints) -> Self {
        Self { config, endpoints, resolution_note: None, shared: None }
    }
}

/// A change of a subchannel's state.
#[derive(Clone, Debug)]
pub struct SubchannelEvent {
    /// Which subchannel (see [`super::Subchannel::id`]).
    pub subchannel: Id,
    /// Its connectivity. Connections are managed by this.
    pub state: ConnectivityState,
    /// The state that health adds to a READY connection (A61): outlier detection rewrites it on the way down;
    /// pick_first under a petiole reports it instead of READY.
    pub health: ConnectivityState,
    /// Why it is in TRANSIENT_FAILURE (or why health is).
    pub error: Option<Arc<PickError>>,
}

/// Where an event goes: the child to take at this level, and the rest of the way.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// The last step, if it is not in `above`.
    leaf: Option<ChildIndex>,
    /// The steps before, the first one at the end.
    above: &'a [ChildIndex],
}

impl<'a> Route<'a> {
    /// The child to hand the event to, with the rest of the way; `None` if the event is for this policy itself.
    #[must_use]
    pub fn next(self) -> Option<(ChildIndex, Route<'a>)> {
        match self.above.split_last() {
            Some((&child, above)) => Some((child, Route { leaf: self.leaf, above })),
            None => self.leaf.map(|leaf| (leaf, Route { leaf: None, above: &[] })),
        }
    }
}

/// A route that is kept. Routes to the children of one policy share all but the last step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRoute {
    leaf: Option<ChildIndex>,
    above: Arc<[ChildIndex]>,
}

impl SharedRoute {
    /// The route from the root.
    #[must_use]
    pub fn route(&self) -> Route<'_> {
        Route { leaf: self.leaf, above: &self.above }
    }
}

/// A route as it is built: the leaf's index first, each level above adds its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteBuf(Vec<ChildIndex>);

impl RouteBuf {
    /// Adds the index that one level up knows the caller by.
    pub fn push(&mut self, child: ChildIndex) {
        if self.0.capacity() == 0 {
            // As many levels as trees mostly have.
            self.0.reserve_exact(12);
        }
        self.0.push(child);
    }

    /// The finished route; with the memory of `like`, if that leads to a sibling.
    #[must_use]
    pub fn share(&self, like: Option<&SharedRoute>) -> SharedRoute {
        let (leaf, above) = match self.0.split_first() {
            Some((&leaf, above)) => (Some(leaf), above),
            None => (None, &[][..]),
        };
        let above = match like {
            Some(like) if *like.above == *above => Arc::clone(&like.above),
            _ => above.into(),
        };
        SharedRoute { leaf, above }
    }

    /// The route from the root.
    #[must_use]
    pub fn route(&self) -> Route<'_> {
        Route { leaf: None, above: &self.0 }
    }
}
