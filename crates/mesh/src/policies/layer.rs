//! The common part of policies with exactly one child: passes events down and the child's output up.

use std::sync::Arc;

use proxyless_balancer::api::{
    Child, ChildIndex, ChildOutput, ConfigError, Cx, Intercept, InterceptCx, Policy, PolicyNode, Subchannel,
    SubchannelEvent, SubchannelSpec, TreePath, Update,
};
use proxyless_sans_io::Time;

/// The specific part of a policy with one child.
pub(super) trait Layer: Send {
    /// Applies an update, and updates the child through `below`.
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError>;

    /// Publishes the child's `output`; unchanged, unless the layer adds something.
    fn publish(&mut self, output: &ChildOutput, cx: &mut dyn Cx) {
        cx.publish(output.state, Arc::clone(&output.picker));
    }

    /// Inspects a subchannel that the child creates on an event, and may add to it. Subchannels created during
    /// [`Self::update`] pass through the layer's own [`InterceptCx`], if any.
    fn on_create(&mut self, _spec: &mut SubchannelSpec) {}

    /// Adds the layer's own description to a node that has the child.
    fn describe(&self, _node: &mut PolicyNode) {}
}

/// A [`Layer`] as a policy.
#[derive(Default)]
pub(super) struct Layered<L> {
    layer: L,
    below: Below,
}

/// The child of a layer, if it has one.
#[derive(Default)]
pub(super) struct Below {
    child: Option<Child>,
    made: u32,
    stale: bool,
}

impl Below {
    /// Updates the child, creating it if there is none.
    pub(super) fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let made = &mut self.made;
        let child = self.child.get_or_insert_with(|| {
            *made += 1;
            Child::new(ChildIndex(*made - 1), &update.config)
        });
        child.update(update, cx)
    }

    /// Whether there is a child.
    pub(super) fn exists(&self) -> bool {
        self.child.is_some()
    }

    /// Drops the child and its descendants.
    pub(super) fn clear(&mut self) {
        self.child = None;
    }

    /// Makes the layer publish even if the child did not, because its own part has changed.
    pub(super) fn republish(&mut self) {
        self.stale = true;
    }
}

impl<L: Layer> Layered<L> {
    fn descend(
        &mut self,
        path: TreePath<'_>,
        cx: &mut dyn Cx,
        f: impl FnOnce(&mut Child, TreePath<'_>, &mut dyn Cx),
    ) {
        let Some((index, rest)) = path.next() else { return };
        // An event for a removed child is ignored.
        if let Some(child) = self.below.child.as_mut().filter(|child| child.index() == index) {
            let by = &mut Seen(|spec: &mut SubchannelSpec| self.layer.on_create(spec));
            f(child, rest, &mut InterceptCx { cx, by });
            self.ascend(cx);
        }
    }

    fn ascend(&mut self, cx: &mut dyn Cx) {
        let stale = std::mem::take(&mut self.below.stale);
        if let Some(child) = &mut self.below.child
            && (child.take_dirty() || stale)
        {
            self.layer.publish(child.output(), cx);
        }
    }
}

impl<L: Layer> Policy for Layered<L> {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let result = self.layer.update(update, &mut self.below, cx);
        self.ascend(cx);
        result
    }

    fn on_subchannel(&mut self, path: TreePath<'_>, event: &SubchannelEvent, cx: &mut dyn Cx) {
        self.descend(path, cx, |child, path, cx| child.on_subchannel(path, event, cx));
    }

    fn on_timer(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        self.descend(path, cx, |child, path, cx| child.on_timer(path, tag, cx));
    }

    fn on_signal(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        self.descend(path, cx, |child, path, cx| child.on_signal(path, tag, cx));
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        if let Some(child) = &mut self.below.child {
            let by = &mut Seen(|spec: &mut SubchannelSpec| self.layer.on_create(spec));
            child.exit_idle(&mut InterceptCx { cx, by });
            self.ascend(cx);
        }
    }

    fn describe(&self, now: Time) -> PolicyNode {
        let mut node = PolicyNode::above(self.below.child.as_ref().map(|child| child.describe(now)));
        self.layer.describe(&mut node);
        node
    }
}

/// Shows a layer the subchannels that its child creates through an [`InterceptCx`].
pub(super) struct Seen<F>(pub(super) F);

impl<F: FnMut(&mut SubchannelSpec)> Intercept for Seen<F> {
    fn create_subchannel(&mut self, mut spec: SubchannelSpec, cx: &mut dyn Cx) -> Subchannel {
        (self.0)(&mut spec);
        cx.create_subchannel(spec)
    }
}
