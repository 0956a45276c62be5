//! The policy trait, and its inputs.

use std::any::Any;
use std::sync::Arc;

use proxyless_sans_io::Time;

use super::{
    ChildIndex, ConfigError, ConnectivityState, Cx, Endpoints, Id, PickError, PolicyConfig, PolicyNode,
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

    /// A subchannel of this policy or of a descendant changed its state.
    fn on_subchannel(&mut self, path: TreePath<'_>, event: &SubchannelEvent, cx: &mut dyn Cx);

    /// A timer of this policy or of a descendant fired. `tag` is the value that it was set with.
    fn on_timer(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx);

    /// A picker raised a signal of this policy or of a descendant.
    fn on_signal(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx);

    /// Leaves IDLE: connects instead of waiting for an RPC.
    fn exit_idle(&mut self, cx: &mut dyn Cx);

    /// Describes children, endpoints and counters for inspection. [`Child::describe`](super::Child::describe) adds what
    /// the parent knows: name, state, configuration. A policy that omits its children or endpoints hides that part of
    /// the tree.
    fn describe(&self, _now: Time) -> PolicyNode {
        PolicyNode::default()
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
    /// The configuration of the whole channel (`XdsConfig`), for policies that know its type.
    pub shared: Option<Arc<dyn Any + Send + Sync>>,
}

impl Update {
    /// An update without a note and without shared data.
    #[must_use]
    pub fn new(config: Arc<dyn PolicyConfig>, endpoints: Endpoints) -> Self {
        Self { config, endpoints, resolution_note: None, shared: None }
    }
}

/// A state change of a subchannel.
#[derive(Clone, Debug)]
pub struct SubchannelEvent {
    /// The subchannel (see [`super::Subchannel::id`]).
    pub subchannel: Id,
    /// The connectivity state, by which connections are managed.
    pub state: ConnectivityState,
    /// The health of a READY connection (A61): outlier detection overrides it on the way down; pick_first under a
    /// petiole policy reports it instead of READY.
    pub health: ConnectivityState,
    /// The reason for TRANSIENT_FAILURE (of the state or the health).
    pub error: Option<Arc<PickError>>,
}

/// The destination of an event: the child at this level, and the rest of the path.
#[derive(Clone, Copy, Debug)]
pub struct TreePath<'a> {
    /// The last step, if it is not in `above`.
    leaf: Option<ChildIndex>,
    /// The earlier steps, in reverse order.
    above: &'a [ChildIndex],
}

impl<'a> TreePath<'a> {
    /// The child to pass the event to, with the rest of the path; `None` if the event is for this policy itself.
    #[must_use]
    pub fn next(self) -> Option<(ChildIndex, TreePath<'a>)> {
        match self.above.split_last() {
            Some((&child, above)) => Some((child, TreePath { leaf: self.leaf, above })),
            None => self.leaf.map(|leaf| (leaf, TreePath { leaf: None, above: &[] })),
        }
    }
}

/// A stored path. Paths to children of the same policy share all but the last step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedTreePath {
    leaf: Option<ChildIndex>,
    above: Arc<[ChildIndex]>,
}

impl SharedTreePath {
    /// The path from the root.
    #[must_use]
    pub fn path(&self) -> TreePath<'_> {
        TreePath { leaf: self.leaf, above: &self.above }
    }
}

/// A path under construction: the leaf's index first; each level above adds its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePathBuf(Vec<ChildIndex>);

impl TreePathBuf {
    /// Adds the index of the caller at the next level up.
    pub fn push(&mut self, child: ChildIndex) {
        if self.0.capacity() == 0 {
            // The usual depth of a tree.
            self.0.reserve_exact(12);
        }
        self.0.push(child);
    }

    /// The finished path; shares memory with `like` if that leads to a sibling.
    #[must_use]
    pub fn share(&self, like: Option<&SharedTreePath>) -> SharedTreePath {
        let (leaf, above) = match self.0.split_first() {
            Some((&leaf, above)) => (Some(leaf), above),
            None => (None, &[][..]),
        };
        let above = match like {
            Some(like) if *like.above == *above => Arc::clone(&like.above),
            _ => above.into(),
        };
        SharedTreePath { leaf, above }
    }

    /// The path from the root.
    #[must_use]
    pub fn path(&self) -> TreePath<'_> {
        TreePath { leaf: None, above: &self.0 }
    }
}
