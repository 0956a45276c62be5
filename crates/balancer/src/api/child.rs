//! Children of a policy: the child, the slot that it publishes into, and its context.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{Rng, Time};

use super::change::{Cause, Changed, reason};
use super::{
    ConfigError, ConnectivityState, Cx, Picker, Policy, PolicyConfig, PolicyEvent, PolicyNode, QueuePicker,
    Signal, StateChange, Subchannel, SubchannelEvent, SubchannelSpec, Timer, TreePath, TreePathBuf, Update,
};

/// The id of a child within its policy. Never reused, so that late events for a removed child are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildIndex(pub u32);

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

    /// Passes a subchannel event to the child.
    pub fn on_subchannel(&mut self, path: TreePath<'_>, event: &SubchannelEvent, cx: &mut dyn Cx) {
        let cause = if event.state == event.health { Cause::Subchannel } else { Cause::Ejection };
        self.call(cause, cx, |policy, cx| policy.on_subchannel(path, event, cx));
    }

    /// Passes a timer to the child.
    pub fn on_timer(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        self.call(Cause::Timer, cx, |policy, cx| policy.on_timer(path, tag, cx));
    }

    /// Passes a signal to the child.
    pub fn on_signal(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        // A signal deferred to the end of the input belongs to the cause of the input.
        let input = self.called.filter(|(at, _)| *at == cx.now());
        let cause = input.map_or(Cause::Signal, |(_, cause)| cause);
        self.call(cause, cx, |policy, cx| policy.on_signal(path, tag, cx));
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
    pub fn describe(&self, now: Time) -> PolicyNode {
        let mut node = self.policy.describe(now);
        node.policy = self.policy_name.to_owned();
        node.state = self.output.state;
        let failure = self.output.picker.failure().map(|error| error.message.clone());
        let changed = self.changed.map(|Changed { at, from, cause }| StateChange {
            seconds_ago: now.since(at).as_secs_f64(),
            from,
            why: reason(from, node.state, cause, failure.as_deref()),
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
        let mut cx = ChildCx { parent: cx, index: self.index, output: &mut self.output };
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
}

impl Cx for ChildCx<'_> {
    fn now(&self) -> Time {
        self.parent.now()
    }

    fn rng(&mut self) -> &mut Rng {
        self.parent.rng()
    }

    fn create_subchannel(&mut self, mut spec: SubchannelSpec) -> Subchannel {
        spec.path.push(self.index);
        self.parent.create_subchannel(spec)
    }

    fn connect(&mut self, subchannel: &Subchannel) {
        self.parent.connect(subchannel);
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
        self.parent.request_reresolution();
    }

    fn record(&mut self, event: PolicyEvent) {
        self.parent.record(event);
    }
}

/// The children of a policy, by a key chosen by the parent and by the index used in paths.
pub struct Children<K> {
    by_key: BTreeMap<K, ChildIndex>,
    by_index: BTreeMap<ChildIndex, Child>,
    next: u32,
}

impl<K> Default for Children<K> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), by_index: BTreeMap::new(), next: 0 }
    }
}

impl<K: Ord> Children<K> {
    /// The child of this key, if there is one.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&Child>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.by_index.get(self.by_key.get(key)?)
    }

    /// The child of this key, if there is one.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut Child>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.by_index.get_mut(self.by_key.get(key)?)
    }

    /// The child with this index, if it still exists.
    pub fn at(&mut self, index: ChildIndex) -> Option<&mut Child> {
        self.by_index.get_mut(&index)
    }

    /// The child of this key, built from `config` if there is none.
    pub fn get_or_insert(&mut self, key: K, config: &Arc<dyn PolicyConfig>) -> &mut Child {
        let next = &mut self.next;
        let index = *self.by_key.entry(key).or_insert_with(|| {
            *next += 1;
            ChildIndex(*next - 1)
        });
        self.by_index.entry(index).or_insert_with(|| Child::new(index, config))
    }

    /// Removes a child together with its subchannels, timers and signals.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<Child>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.by_index.remove(&self.by_key.remove(key)?)
    }

    /// Removes the children whose keys do not satisfy `keep`.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        let by_index = &mut self.by_index;
        self.by_key.retain(|key, index| {
            let kept = keep(key);
            if !kept {
                by_index.remove(index);
            }
            kept
        });
    }

    /// Keys and children, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Child)> {
        self.by_key.iter().filter_map(|(key, index)| Some((key, self.by_index.get(index)?)))
    }

    /// All children, in creation order.
    pub fn values(&self) -> impl Iterator<Item = &Child> {
        self.by_index.values()
    }

    /// All children, in creation order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Child> {
        self.by_index.values_mut()
    }

    /// The number of children.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are no children.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}
