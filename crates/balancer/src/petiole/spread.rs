//! The common part of petiole policies that connect to every endpoint and spread RPCs over the READY ones:
//! round_robin, least_request and weighted_round_robin. They differ only in their pickers.
//!
//! Inputs are the update and the events of the children; the output is one picker over the READY children, built once
//! per input, or the error of a child if all have failed.

use std::sync::Arc;

use proxyless_sans_io::Time;
use proxyless_sans_io::metrics::PlaceId;

use super::{Change, Connect, Member, Petiole};
use crate::api::creator_cx::CreatorCx;
use crate::api::{
    BackendMetrics, ChildIndex, ConfigError, ConnectivityState, Cx, Deferred, FailPicker, PickError, Picker,
    Policy, PolicyConfig, PolicyView, QueuePicker, SubchannelHandle, SubchannelSpec, TreeEvent, TreePath,
    Update, config_of,
};

/// The specific part of a policy that spreads RPCs. [`SpreadPolicy`] makes it a policy.
pub(crate) trait Spread: Default + Send {
    /// The policy's name.
    const NAME: &'static str;
    /// Its configuration.
    type Config: PolicyConfig;
    /// The picker over its READY children.
    type Picker: SpreadPicker + 'static;

    /// Applies a configuration.
    fn configure(&mut self, _config: &Self::Config, _cx: &mut dyn Cx) -> Applied {
        Applied::SamePicker
    }

    /// The cluster and the locality that the policy serves, for metrics.
    fn located(&mut self, _place: PlaceId) {}

    /// The update has been applied to the children.
    fn updated(&mut self, _members: &[Member], _cx: &mut dyn Cx) -> Applied {
        Applied::SamePicker
    }

    /// Creates a subchannel of this endpoint, which its pick_first requested.
    fn create_subchannel(
        &mut self,
        _endpoint: ChildIndex,
        spec: SubchannelSpec,
        cx: &mut dyn Cx,
    ) -> SubchannelHandle {
        cx.create_subchannel(spec)
    }

    /// The state of an endpoint changed.
    fn changed(&mut self, _member: &Member, _change: Change, _now: Time) {}

    /// An endpoint reported its load out of band.
    fn on_load(&mut self, _endpoint: ChildIndex, _metrics: &BackendMetrics, _now: Time) {}

    /// A timer of the policy fired.
    fn on_event(
        &mut self,
        _event: TreeEvent<'_>,
        _members: &[Member],
        _picker: Option<&Self::Picker>,
        _cx: &mut dyn Cx,
    ) {
    }

    /// The picker over these READY children, whose own pickers are `children`.
    fn picker(
        &mut self,
        ready: &[&Member],
        children: Vec<Arc<dyn Picker>>,
        cx: &mut dyn Cx,
    ) -> Arc<Self::Picker>;

    /// Adds details to the description of the endpoints.
    fn describe(&self, _now: Time, _members: &[Member], _node: &mut PolicyView) {}
}

/// The picker of a [`Spread`].
pub(crate) trait SpreadPicker: Picker {
    /// The pickers of the READY children.
    fn children(&self) -> &[Arc<dyn Picker>];
}

/// The effect of an update on the published picker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// It stays valid.
    SamePicker,
    /// It must be built again.
    NewPicker,
}

impl Applied {
    fn and(self, other: Self) -> Self {
        if other == Self::NewPicker { other } else { self }
    }
}

/// A policy that connects to every endpoint and spreads RPCs over the READY ones.
pub(crate) struct SpreadPolicy<S: Spread> {
    spread: S,
    petiole: Petiole,
    note: Option<Arc<str>>,
    published: LastPublished<S::Picker>,
    /// Requested when the READY children have changed. The picker contains all of them: when many change in one input,
    /// it is rebuilt once, at the end.
    rebuild: Deferred,
}

/// The last output, as far as needed to decide whether to publish again.
enum LastPublished<P> {
    Nothing,
    Connecting,
    Ready(Arc<P>),
    Failure {
        error: Arc<PickError>,
        /// The child whose error is published.
        child: Option<ChildIndex>,
    },
}

impl<S: Spread> Default for SpreadPolicy<S> {
    fn default() -> Self {
        Self {
            spread: S::default(),
            petiole: Petiole::new(Connect::Always),
            note: None,
            published: LastPublished::Nothing,
            rebuild: Deferred::default(),
        }
    }
}

impl<S: Spread> Policy for SpreadPolicy<S> {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        self.spread.located(update.place);
        let applied = self.spread.configure(config_of::<S::Config>(S::NAME, &update.config)?, cx);
        self.note.clone_from(&update.resolution_note);
        self.petiole.update(&update.endpoints, &mut below_cx(&mut self.spread, cx));
        let applied = applied.and(self.spread.updated(self.petiole.members(), cx));
        match self.petiole.counts().aggregate() {
            ConnectivityState::Ready => self.publish_ready(applied, cx),
            ConnectivityState::TransientFailure => {
                let shown =
                    self.shown().or_else(|| self.petiole.members().first().map(|member| member.index()));
                self.publish_failure(shown, cx);
            }
            ConnectivityState::Idle | ConnectivityState::Connecting => self.publish_connecting(cx),
        }
        Ok(())
    }

    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        match (path.next(), event) {
            (None, TreeEvent::Signal(_)) => self.rebuild(cx),
            (None, _) => self.pass_to_spread(event, cx),
            (Some((endpoint, _)), TreeEvent::Load(metrics)) => {
                self.spread.on_load(endpoint, metrics, cx.now())
            }
            _ => {
                let change = self.petiole.on_event(path, event, &mut below_cx(&mut self.spread, cx));
                self.changed(change, cx);
            }
        }
    }

    /// Children never stay IDLE.
    fn exit_idle(&mut self, _: &mut dyn Cx) {}

    fn describe(&self, now: Time) -> PolicyView {
        let mut node = self.petiole.describe(now);
        self.spread.describe(now, self.petiole.members(), &mut node);
        node
    }
}

impl<S: Spread> SpreadPolicy<S> {
    fn pass_to_spread(&mut self, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        let picker = match &self.published {
            LastPublished::Ready(picker) => Some(&**picker),
            _ => None,
        };
        self.spread.on_event(event, self.petiole.members(), picker, cx);
    }

    /// A child published: publishes only if that changes the result of picks.
    fn changed(&mut self, change: Option<Change>, cx: &mut dyn Cx) {
        let Some(change) = change else { return };
        let Some(member) = self.petiole.members().get(change.position) else { return };
        let changed = member.index();
        self.spread.changed(member, change, cx.now());
        match self.petiole.counts().aggregate() {
            ConnectivityState::Ready => {
                if change.touches_ready() {
                    self.rebuild.request(0, cx);
                }
            }
            ConnectivityState::TransientFailure => {
                // The error of the child that failed last is published; while it is, only changes of that child matter.
                let shown = self.shown();
                if shown.is_none() || shown == Some(changed) {
                    self.publish_failure(Some(changed), cx);
                }
            }
            ConnectivityState::Idle | ConnectivityState::Connecting => self.publish_connecting(cx),
        }
    }

    /// All other events of the input have been handled.
    fn rebuild(&mut self, cx: &mut dyn Cx) {
        if self.rebuild.take() && self.petiole.counts().aggregate() == ConnectivityState::Ready {
            self.publish_ready(Applied::SamePicker, cx);
        }
    }

    fn publish_ready(&mut self, applied: Applied, cx: &mut dyn Cx) {
        let is_ready = |member: &&Member| member.state() == ConnectivityState::Ready;
        let ready: Vec<_> = self.petiole.members().iter().filter(is_ready).collect();
        let children: Vec<_> = ready.iter().map(|member| Arc::clone(member.picker())).collect();
        let is_same = |picker: &S::Picker| {
            let old = picker.children();
            old.len() == children.len() && old.iter().zip(&children).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        if applied == Applied::SamePicker
            && matches!(&self.published, LastPublished::Ready(picker) if is_same(picker))
        {
            return;
        }
        let picker = self.spread.picker(&ready, children, cx);
        self.published = LastPublished::Ready(Arc::clone(&picker));
        cx.publish(ConnectivityState::Ready, picker);
    }

    fn publish_connecting(&mut self, cx: &mut dyn Cx) {
        if !matches!(self.published, LastPublished::Connecting) {
            self.published = LastPublished::Connecting;
            cx.publish(ConnectivityState::Connecting, QueuePicker::new());
        }
    }

    /// Publishes the error of this child.
    fn publish_failure(&mut self, child: Option<ChildIndex>, cx: &mut dyn Cx) {
        let error = self.failure(child);
        if matches!(&self.published, LastPublished::Failure { error: published, .. } if *published == error) {
            return;
        }
        cx.publish(ConnectivityState::TransientFailure, FailPicker::new(Arc::clone(&error)));
        self.published = LastPublished::Failure { error, child };
    }

    fn failure(&self, child: Option<ChildIndex>) -> Arc<PickError> {
        let error = child.and_then(|child| self.petiole.member(child)?.error());
        let message = match (error, self.petiole.members().is_empty()) {
            (Some(error), _) => format!("connections to all backends failing; last error: {}", error.message),
            (None, false) => "connections to all backends failing".to_owned(),
            (None, true) => "no endpoints".to_owned(),
        };
        PickError::with_note(message, self.note.as_ref())
    }

    /// The child whose error is published, if it still exists.
    fn shown(&self) -> Option<ChildIndex> {
        match self.published {
            LastPublished::Failure { child, .. } => {
                child.filter(|&child| self.petiole.member(child).is_some())
            }
            _ => None,
        }
    }
}

/// The context of the children: the policy creates their subchannels.
fn below_cx<S: Spread>(spread: &mut S, cx: &mut dyn Cx) -> impl Cx {
    CreatorCx::new(cx, |spec: SubchannelSpec, cx| {
        // The child's context has added its index, which is the endpoint's.
        match spec.path.path().next() {
            Some((endpoint, _)) => spread.create_subchannel(endpoint, spec, cx),
            None => cx.create_subchannel(spec),
        }
    })
}
