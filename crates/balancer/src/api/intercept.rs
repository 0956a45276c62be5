//! Support for policies that intercept their child's requests for subchannels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{Rng, Time};

use super::{
    ConnectivityState, Cx, Id, Picker, PolicyEvent, Releases, Signal, Subchannel, SubchannelSpec, Timer,
    TreePathBuf,
};

/// Creates subchannels for a child.
pub trait Intercept {
    /// Creates a subchannel that the child requested. `cx` is the interceptor's own context; the path in `spec`
    /// already leads through the interceptor to the child.
    fn create_subchannel(&mut self, spec: SubchannelSpec, cx: &mut dyn Cx) -> Subchannel;
}

/// A context that passes requests for subchannels to `by`, and everything else to `cx`.
pub struct InterceptCx<'a, I> {
    /// The interceptor's own context.
    pub cx: &'a mut dyn Cx,
    /// The interceptor.
    pub by: &'a mut I,
}

impl<I: Intercept> Cx for InterceptCx<'_, I> {
    fn now(&self) -> Time {
        self.cx.now()
    }

    fn rng(&mut self) -> &mut Rng {
        self.cx.rng()
    }

    fn create_subchannel(&mut self, spec: SubchannelSpec) -> Subchannel {
        self.by.create_subchannel(spec, self.cx)
    }

    fn connect(&mut self, subchannel: &Subchannel) {
        self.cx.connect(subchannel);
    }

    fn set_timer(&mut self, path: TreePathBuf, delay: Duration, tag: u32) -> Timer {
        self.cx.set_timer(path, delay, tag)
    }

    fn create_signal(&mut self, path: TreePathBuf, tag: u32) -> Signal {
        self.cx.create_signal(path, tag)
    }

    fn defer(&mut self, signal: &Signal) {
        self.cx.defer(signal);
    }

    fn publish(&mut self, state: ConnectivityState, picker: Arc<dyn Picker>) {
        self.cx.publish(state, picker);
    }

    fn bump(&mut self) {
        self.cx.bump();
    }

    fn request_reresolution(&mut self) {
        self.cx.request_reresolution();
    }

    fn record(&mut self, event: PolicyEvent) {
        self.cx.record(event);
    }
}

/// The subchannels that a policy created for its child: the policy keeps its own handle of each, with a payload, and
/// learns when the child drops its handle.
pub struct Lent<T> {
    releases: Arc<Releases>,
    lent: BTreeMap<Id, (Subchannel, T)>,
}

impl<T> Default for Lent<T> {
    fn default() -> Self {
        Self { releases: Releases::new(), lent: BTreeMap::new() }
    }
}

impl<T> Lent<T> {
    /// Keeps `own` and returns the child's handle, with the same id, so that events need no translation.
    pub fn lend(&mut self, own: Subchannel, with: T) -> Subchannel {
        let child = Subchannel::new(own.id(), Arc::clone(own.target()), Arc::clone(&self.releases));
        self.lent.insert(own.id(), (own, with));
        child
    }

    /// Takes the subchannels that the child has dropped since the last call. Must be called after every call of the
    /// child.
    pub fn take_returned(&mut self) -> Vec<(Subchannel, T)> {
        self.releases.drain().into_iter().filter_map(|id| self.lent.remove(&id)).collect()
    }

    /// A subchannel that the child holds.
    #[must_use]
    pub fn get(&self, id: Id) -> Option<&(Subchannel, T)> {
        self.lent.get(&id)
    }

    /// A subchannel that the child holds.
    pub fn get_mut(&mut self, id: Id) -> Option<&mut (Subchannel, T)> {
        self.lent.get_mut(&id)
    }

    /// All subchannels that the child holds, in creation order.
    pub fn iter(&self) -> impl Iterator<Item = &(Subchannel, T)> {
        self.lent.values()
    }
}
