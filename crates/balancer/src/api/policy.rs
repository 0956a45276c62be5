//! The policy trait, and its inputs.

use std::any::Any;
use std::sync::Arc;

use proxyless_sans_io::Time;
use proxyless_sans_io::metrics::PlaceId;

use super::{
    BackendMetrics, ConfigError, ConnectivityState, Cx, Endpoints, HandleId, PickError, PolicyConfig,
    PolicyView, TreePath,
};

/// A load balancing policy: decides which connections to hold, and which of them each RPC uses.
///
/// Every method may call `cx.publish`; after `update` something must be published (gRFC A31: a new configuration and
/// its picker are applied in one step).
pub trait Policy: Send {
    /// Applies a new configuration and endpoints.
    ///
    /// # Errors
    /// If the policy rejects the update. It keeps its previous configuration, or publishes TRANSIENT_FAILURE if it has
    /// none.
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError>;

    /// Handles an event: the policy's own if `path` ends here; otherwise it is for the child that `path` leads to.
    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx);

    /// Leaves IDLE: connects instead of waiting for an RPC.
    fn exit_idle(&mut self, cx: &mut dyn Cx);

    /// Describes children, endpoints and counters for inspection. [`Child::describe`](super::Child::describe) adds what
    /// the parent knows: name, state, configuration. A policy that omits its children or endpoints hides that part of
    /// the tree.
    fn describe(&self, _now: Time) -> PolicyView {
        PolicyView::default()
    }
}

/// The input of [`Policy::update`]. Cheap to clone: everything in it is shared.
#[derive(Clone)]
pub struct Update {
    /// The policy's configuration.
    pub config: Arc<dyn PolicyConfig>,
    /// The endpoints of the policy.
    pub endpoints: Endpoints,
    /// The reason why endpoints are missing, for the error of RPCs that fail (A74).
    pub resolution_note: Option<Arc<str>>,
    /// The cluster (gRFC A89) and, below weighted_target, the locality (gRFC A78), for metrics.
    pub place: PlaceId,
    /// Data for policies that know its type: xds_cluster_manager gives each cds the view of its cluster.
    pub shared: Option<Arc<dyn Any + Send + Sync>>,
}

impl Update {
    /// An update without a note and without shared data.
    #[must_use]
    pub fn new(config: Arc<dyn PolicyConfig>, endpoints: Endpoints) -> Self {
        Self { config, endpoints, resolution_note: None, place: PlaceId::default(), shared: None }
    }
}

/// An event that the tree delivers to a policy, along a [`TreePath`].
#[derive(Clone, Copy, Debug)]
pub enum TreeEvent<'a> {
    /// A subchannel changed its state.
    Subchannel(&'a SubchannelEvent),
    /// A subchannel's server reported its load out of band (gRFC A51). Every policy on the path sees it.
    Load(&'a BackendMetrics),
    /// A timer fired. The tag is the value that it was set with.
    Timer(u32),
    /// A signal was raised by a picker, or deferred to now. The tag is the value that it was created with.
    Signal(u32),
}

/// A state change of a subchannel.
#[derive(Clone, Debug)]
pub struct SubchannelEvent {
    /// The subchannel (see [`super::SubchannelHandle::id`]).
    pub subchannel: HandleId,
    /// The connectivity state, by which connections are managed.
    pub state: ConnectivityState,
    /// The health of a READY connection (A61): outlier detection overrides it on the way down; pick_first under a
    /// petiole policy reports it instead of READY.
    pub health: ConnectivityState,
    /// The reason for TRANSIENT_FAILURE (of the state or the health).
    pub error: Option<Arc<PickError>>,
}
