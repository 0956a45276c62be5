//! The common part of policies with exactly one child: passes events down and the child's output up.

use std::borrow::Cow;
use std::sync::Arc;

use proxyless_sans_io::Time;

use super::child::ChildIndices;
use super::creator_cx::CreatorCx;
use super::{
    Child, ChildIndex, ChildOutput, ConfigError, ConnectivityState, Cx, Policy, PolicyView, SubchannelEvent,
    SubchannelHandle, SubchannelSpec, TreeEvent, TreePath, Update,
};

/// The specific part of a policy with one child. [`Layered`] makes it a policy.
pub trait Layer: Send + Sized {
    /// Applies an update, and updates the child through `below`.
    ///
    /// # Errors
    /// If the layer or its child rejects the update.
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError>;

    /// Handles a timer or signal of the layer itself.
    fn on_event(&mut self, _event: TreeEvent<'_>, _below: &mut Below, _cx: &mut dyn Cx) {}

    /// Handles an event of a subchannel of the child, or of the layer itself. Returns the event as the child sees it;
    /// `None` if it is not for the child.
    fn on_subchannel<'a>(
        &mut self,
        event: &'a SubchannelEvent,
        _cx: &mut dyn Cx,
    ) -> Option<Cow<'a, SubchannelEvent>> {
        Some(Cow::Borrowed(event))
    }

    /// Creates a subchannel that the child requested. `cx` is the layer's own context; the path in `spec` already leads
    /// through the layer to the child.
    fn create_subchannel(&mut self, spec: SubchannelSpec, cx: &mut dyn Cx) -> SubchannelHandle {
        cx.create_subchannel(spec)
    }

    /// Called after every input, when the child has returned.
    fn finish(&mut self, _cx: &mut dyn Cx) {}

    /// Publishes the child's `output`; unchanged, unless the layer adds something.
    fn publish(&mut self, output: &ChildOutput, cx: &mut dyn Cx) {
        cx.publish(output.state, Arc::clone(&output.picker));
    }

    /// Adds the layer's own description to a node that has the child.
    fn describe(&self, _now: Time, _node: &mut PolicyView) {}
}

/// A [`Layer`] as a policy.
#[derive(Default)]
pub struct Layered<L> {
    layer: L,
    below: Below,
}

/// The child of a layer, if it has one.
#[derive(Default)]
pub struct Below {
    child: Option<Child>,
    /// The child before [`Self::replace`]. It serves RPCs until its replacement can.
    outgoing: Option<Box<Child>>,
    indices: ChildIndices,
    stale: bool,
}

impl Below {
    /// Updates the child, creating it if there is none.
    ///
    /// # Errors
    /// If the child rejects the update.
    pub fn update(
        &mut self,
        update: &Update,
        layer: &mut impl Layer,
        cx: &mut dyn Cx,
    ) -> Result<(), ConfigError> {
        let indices = &mut self.indices;
        let child = self.child.get_or_insert_with(|| Child::new(indices.assign(), &update.config));
        let result = child.update(update, &mut below_cx(layer, cx));
        self.outgoing.take_if(|outgoing| outgoing.update(update, cx).is_err());
        result
    }

    /// Passes an event to the child that `path` leads to. An event for a removed child is ignored.
    pub fn on_event(
        &mut self,
        path: TreePath<'_>,
        event: TreeEvent<'_>,
        layer: &mut impl Layer,
        cx: &mut dyn Cx,
    ) {
        let Some((index, rest)) = path.next() else { return };
        if let Some(child) = at(self.child.as_mut(), index) {
            child.on_event(rest, event, &mut below_cx(layer, cx));
        } else if let Some(outgoing) = at(self.outgoing.as_deref_mut(), index) {
            outgoing.on_event(rest, event, cx);
        }
    }

    /// The last output of the child.
    #[cfg(test)]
    pub(crate) fn output(&self) -> Option<&ChildOutput> {
        self.child.as_ref().map(Child::output)
    }

    /// Whether there is a child.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.child.is_some()
    }

    /// Drops the child and its descendants.
    pub fn clear(&mut self) {
        (self.child, self.outgoing) = (None, None);
    }

    /// Makes the next update create a new child, which takes over the connections of this one. This one serves RPCs
    /// until its replacement has left CONNECTING; the layer no longer sees its subchannels.
    pub fn replace(&mut self) {
        self.outgoing = self.child.take().map(Box::new);
    }

    /// Makes the layer publish even if the child did not, because its own part has changed.
    pub fn republish(&mut self) {
        self.stale = true;
    }

    /// The output to publish, if it has changed.
    fn take_output(&mut self) -> Option<&ChildOutput> {
        let child = self.child.as_mut()?;
        // Also one in TRANSIENT_FAILURE: RPCs that fail at once must not begin to wait for the replacement.
        let serves = |outgoing: &Child| {
            matches!(outgoing.output().state, ConnectivityState::Ready | ConnectivityState::TransientFailure)
                && child.output().state == ConnectivityState::Connecting
        };
        let replaced = self.outgoing.take_if(|outgoing| !serves(outgoing)).is_some();
        let shown = self.outgoing.as_deref_mut().unwrap_or(child);
        let stale = std::mem::take(&mut self.stale);
        (shown.take_dirty() || replaced || stale).then(|| shown.output())
    }
}

fn at(child: Option<&mut Child>, index: ChildIndex) -> Option<&mut Child> {
    child.filter(|child| child.index() == index)
}

impl<L: Layer> Layered<L> {
    fn finish(&mut self, cx: &mut dyn Cx) {
        self.layer.finish(cx);
        if let Some(output) = self.below.take_output() {
            self.layer.publish(output, cx);
        }
    }
}

impl<L: Layer> Policy for Layered<L> {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let result = self.layer.update(update, &mut self.below, cx);
        self.finish(cx);
        result
    }

    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        let Self { layer, below } = self;
        match event {
            TreeEvent::Subchannel(event) => {
                if let Some(event) = layer.on_subchannel(event, cx) {
                    below.on_event(path, TreeEvent::Subchannel(&event), layer, cx);
                }
            }
            _ if path.next().is_none() => layer.on_event(event, below, cx),
            _ => below.on_event(path, event, layer, cx),
        }
        self.finish(cx);
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        let Self { layer, below } = self;
        if let Some(child) = &mut below.child {
            child.exit_idle(&mut below_cx(layer, cx));
        }
        if let Some(outgoing) = &mut below.outgoing {
            outgoing.exit_idle(cx);
        }
        self.finish(cx);
    }

    fn describe(&self, now: Time) -> PolicyView {
        let mut node = PolicyView::above(self.below.child.as_ref().map(|child| child.describe(now)));
        self.layer.describe(now, &mut node);
        node
    }
}

/// A layer's context for its child: the layer creates the subchannels.
fn below_cx(layer: &mut impl Layer, cx: &mut dyn Cx) -> impl Cx {
    CreatorCx::new(cx, |spec, cx| layer.create_subchannel(spec, cx))
}
