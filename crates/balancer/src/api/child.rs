//! A child of a policy, the slot that it publishes into, and its context.

use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::metrics::Meter;
use proxyless_sans_io::{Rng, Time};

use super::change::{Cause, Changed, reason};
use super::{
    ConfigError, ConnectivityState, Cx, Picker, Policy, PolicyConfig, PolicyEvent, PolicyView, QueuePicker,
    Signal, StateChange, SubchannelHandle, SubchannelSpec, Timer, TreeEvent, TreePath, TreePathBuf, Update,
};

/// The id of a child within its policy. Never reused, so that late events for a removed child are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildIndex(pub u32);

/// Assigns the indices of a policy's children.
#[derive(Debug, Default)]
pub(crate) struct ChildIndices(u32);

impl ChildIndices {
    /// A new index, greater than all previous ones.
    pub(crate) fn assign(&mut self) -> ChildIndex {
        self.0 += 1;
        ChildIndex(self.0 - 1)
    }

    /// The index that [`Self::assign`] returns next.
    pub(crate) fn next(&self) -> ChildIndex {
        ChildIndex(self.0)
    }
}

/// Whether a child's requests for re-resolution are passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Reresolution {
    #[default]
    Forwarded,
    Ignored,
}

/// The last output of a child.
#[derive(Clone)]
pub struct ChildOutput {
    /// The child's state; initially CONNECTING.
    pub state: ConnectivityState,
    /// The child's picker; initially one that queues.
    pub picker: Arc<dyn Picker>,
    /// Whether the child has published since the parent last checked (see [`Child::take_dirty`]).
    pub dirty: bool,
}

impl Default for ChildOutput {
    fn default() -> Self {
        Self { state: ConnectivityState::Connecting, picker: QueuePicker::new(), dirty: false }
    }
}

/// A child policy with its last output. The parent calls it, then reads what it published.
pub struct Child {
    index: ChildIndex,
    policy: Box<dyn Policy>,
    policy_name: &'static str,
    output: ChildOutput,
    reresolution: Reresolution,
    last: Option<Update>,
    changed: Option<Changed>,
    /// The last call other than a signal.
    called: Option<(Time, Cause)>,
}

impl Child {
    /// Builds the policy that `config` names. It still needs an update.
    #[must_use]
    pub fn new(index: ChildIndex, config: &Arc<dyn PolicyConfig>) -> Self {
        Self {
            index,
            policy: config.build(),
            policy_name: config.policy_name(),
            output: ChildOutput::default(),
            reresolution: Reresolution::default(),
            last: None,
            changed: None,
            called: None,
        }
    }

    /// The child's last output.
    #[must_use]
    pub fn output(&self) -> &ChildOutput {
        &self.output
    }

    /// Whether the child has published since the last call of this method.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.output.dirty)
    }

    /// Sets whether the child's requests for re-resolution are passed on.
    pub fn set_reresolution(&mut self, reresolution: Reresolution) {
        self.reresolution = reresolution;
    }

    /// The child's index in its parent.
    #[must_use]
    pub fn index(&self) -> ChildIndex {
        self.index
    }

    /// The name of the child's policy.
    #[must_use]
    pub fn policy_name(&self) -> &'static str {
        self.policy_name
    }

    /// Updates the child. If the configuration names a different policy, the child's policy is replaced, while its
    /// connections stay in the pool. An update without changes (same configuration, same endpoints by value, same note,
    /// same shared pointer) is not passed on.
    ///
    /// # Errors
    /// If the child's policy rejects the update.
    pub fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        if self.last.as_ref().is_some_and(|last| unchanged(last, update)) {
            return Ok(());
        }
        if update.config.policy_name() != self.policy_name {
            // The old policy is dropped only after the new one holds its subchannels, so that the pool keeps the
            // connections that both use.
            let old = std::mem::replace(&mut self.policy, update.config.build());
            self.policy_name = update.config.policy_name();
            let result = self.pass_on(update, cx);
            drop(old);
            return result;
        }
        self.pass_on(update, cx)
    }

    /// Passes an event to the child.
    pub fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        let cause = match event {
            TreeEvent::Subchannel(event) if event.state != event.health => Cause::Ejection,
            TreeEvent::Subchannel(_) | TreeEvent::Load(_) => Cause::Subchannel,
            TreeEvent::Timer(_) => Cause::Timer,
            // A signal deferred to the end of the input belongs to the cause of the input.
            TreeEvent::Signal(_) => {
                self.called.filter(|(at, _)| *at == cx.now()).map_or(Cause::Signal, |(_, cause)| cause)
            }
        };
        self.call(cause, cx, |policy, cx| policy.on_event(path, event, cx));
    }

    /// Makes the child leave IDLE.
    pub fn exit_idle(&mut self, cx: &mut dyn Cx) {
        self.call(Cause::ExitIdle, cx, |policy, cx| policy.exit_idle(cx));
    }

    fn pass_on(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let result = self.call(Cause::Update, cx, |policy, cx| policy.update(update, cx));
        // A rejected update is passed on when it is repeated.
        self.last = result.is_ok().then(|| update.clone());
        result
    }

    /// A description of the child and its descendants.
    #[must_use]
    pub fn describe(&self, now: Time) -> PolicyView {
        let mut node = self.policy.describe(now);
        node.policy = self.policy_name.to_owned();
        node.state = self.output.state;
        let failure = self.output.picker.failure().map(|error| error.message.clone());
        let changed = self.changed.map(|Changed { at, from, cause }| StateChange {
            age: now.since(at),
            from,
            reason: reason(from, node.state, cause, failure.as_deref()),
        });
        node.set_changed(changed);
        node.error = failure.or(node.error);
        if let Some(update) = &self.last {
            node.config = update.config.fields();
            let note = update.resolution_note.as_deref().map(str::to_owned);
            node.resolution_note = node.resolution_note.or(note);
        }
        node
    }

    fn call<R>(
        &mut self,
        cause: Cause,
        cx: &mut dyn Cx,
        f: impl FnOnce(&mut dyn Policy, &mut dyn Cx) -> R,
    ) -> R {
        let (at, from) = (cx.now(), self.output.state);
        let (index, reresolution) = (self.index, self.reresolution);
        let mut cx = ChildCx { parent: cx, index, output: &mut self.output, reresolution };
        let result = f(&mut *self.policy, &mut cx);
        if self.output.state != from {
            self.changed = Some(Changed { at, from, cause });
        }
        self.called = Some((at, cause));
        result
    }
}

fn unchanged(last: &Update, new: &Update) -> bool {
    *last.config == *new.config
        && last.endpoints == new.endpoints
        && last.resolution_note == new.resolution_note
        && match (&last.shared, &new.shared) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
}

/// The context that a parent passes to a child: adds the child's index to paths and stores its output.
pub struct ChildCx<'a> {
    /// The parent's context.
    pub parent: &'a mut dyn Cx,
    /// The child's index.
    pub index: ChildIndex,
    /// The slot for the child's output.
    pub output: &'a mut ChildOutput,
    /// Whether requests for re-resolution are passed on.
    pub reresolution: Reresolution,
}

impl Cx for ChildCx<'_> {
    fn now(&self) -> Time {
        self.parent.now()
    }

    fn rng(&mut self) -> &mut Rng {
        self.parent.rng()
    }

    fn create_subchannel(&mut self, mut spec: SubchannelSpec) -> SubchannelHandle {
        spec.path.push(self.index);
        self.parent.create_subchannel(spec)
    }

    fn connect(&mut self, subchannel: &SubchannelHandle) {
        self.parent.connect(subchannel);
    }

    fn watch_load(&mut self, subchannel: &SubchannelHandle, interval: Option<Duration>) {
        self.parent.watch_load(subchannel, interval);
    }

    fn connection_limits_changed(&mut self) {
        self.parent.connection_limits_changed();
    }

    fn set_timer(&mut self, mut path: TreePathBuf, delay: Duration, tag: u32) -> Timer {
        path.push(self.index);
        self.parent.set_timer(path, delay, tag)
    }

    fn create_signal(&mut self, mut path: TreePathBuf, tag: u32) -> Signal {
        path.push(self.index);
        self.parent.create_signal(path, tag)
    }

    fn defer(&mut self, signal: &Signal) {
        self.parent.defer(signal);
    }

    fn publish(&mut self, state: ConnectivityState, picker: Arc<dyn Picker>) {
        *self.output = ChildOutput { state, picker, dirty: true };
    }

    fn bump(&mut self) {
        self.parent.bump();
    }

    fn request_reresolution(&mut self) {
        if self.reresolution == Reresolution::Forwarded {
            self.parent.request_reresolution();
        }
    }

    fn record(&mut self, event: PolicyEvent) {
        self.parent.record(event);
    }

    fn meter(&self) -> &Meter {
        self.parent.meter()
    }
}
