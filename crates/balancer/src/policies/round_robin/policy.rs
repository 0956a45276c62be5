//! The policy: the state and picker it publishes for the states of its children.

use std::sync::Arc;

use proxyless_sans_io::Time;

use super::RoundRobinConfig;
use super::picker::RoundRobinPicker;
use super::position::Position;
use crate::api::{
    ChildIndex, ConfigError, ConnectivityState, Cx, Deferred, FailPicker, PickError, Policy, PolicyView,
    QueuePicker, TreeEvent, TreePath, Update, config_of,
};
use crate::petiole::{Change, Connect, Petiole};

/// The policy `round_robin`.
pub struct RoundRobin {
    petiole: Petiole,
    note: Option<Arc<str>>,
    position: Option<Arc<Position>>,
    published: LastPublished,
    /// Requested when the READY children have changed. The picker contains all of them: when many change in one input,
    /// it is rebuilt once, at the end.
    rebuild: Deferred,
}

/// The last output, as far as needed to decide whether to publish again.
enum LastPublished {
    Nothing,
    Connecting,
    Ready(Arc<RoundRobinPicker>),
    Failure {
        error: Arc<PickError>,
        /// The child whose error is published.
        child: Option<ChildIndex>,
    },
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self {
            petiole: Petiole::new(Connect::Always),
            note: None,
            position: None,
            published: LastPublished::Nothing,
            rebuild: Deferred::default(),
        }
    }
}

impl Policy for RoundRobin {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        config_of::<RoundRobinConfig>("round_robin", &update.config)?;
        self.note.clone_from(&update.resolution_note);
        self.petiole.update(&update.endpoints, cx);
        match self.petiole.counts().aggregate() {
            ConnectivityState::Ready => self.publish_ready(cx),
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
        if path.next().is_none() {
            return self.rebuild(cx);
        }
        let change = self.petiole.on_event(path, event, cx);
        self.changed(change, cx);
    }

    /// Children never stay IDLE.
    fn exit_idle(&mut self, _: &mut dyn Cx) {}

    fn describe(&self, now: Time) -> PolicyView {
        self.petiole.describe(now)
    }
}

impl RoundRobin {
    /// A child published: publishes only if that changes the result of picks.
    fn changed(&mut self, change: Option<Change>, cx: &mut dyn Cx) {
        let Some(change) = change else { return };
        match self.petiole.counts().aggregate() {
            ConnectivityState::Ready => {
                if change.touches_ready() {
                    self.rebuild.request(0, cx);
                }
            }
            ConnectivityState::TransientFailure => {
                // The error of the child that failed last is published; while it is, only changes of that child matter.
                let changed = self.petiole.members().get(change.position).map(|member| member.index());
                let shown = self.shown();
                if shown.is_none() || shown == changed {
                    self.publish_failure(changed, cx);
                }
            }
            ConnectivityState::Idle | ConnectivityState::Connecting => self.publish_connecting(cx),
        }
    }

    /// All other events of the input have been handled.
    fn rebuild(&mut self, cx: &mut dyn Cx) {
        if self.rebuild.take() && self.petiole.counts().aggregate() == ConnectivityState::Ready {
            self.publish_ready(cx);
        }
    }

    fn publish_ready(&mut self, cx: &mut dyn Cx) {
        let ready = self.petiole.members().iter().filter(|member| member.state() == ConnectivityState::Ready);
        let children: Vec<_> = ready.map(|member| Arc::clone(member.picker())).collect();
        if matches!(&self.published, LastPublished::Ready(picker) if picker.has_children(&children)) {
            return;
        }
        // A random start, so that clients do not all start with the same endpoint.
        let position = self.position.get_or_insert_with(|| Position::starting_at(cx.rng().next_u64()));
        let picker = RoundRobinPicker::new(children, Arc::clone(position));
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
