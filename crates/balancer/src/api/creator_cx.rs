//! The context of the children of a policy that creates their subchannels itself.

use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::metrics::Meter;
use proxyless_sans_io::{Rng, Time};

use super::{
    ConnectivityState, Cx, Picker, PolicyEvent, Signal, SubchannelHandle, SubchannelSpec, Timer, TreePathBuf,
};

/// Passes everything to the policy's own context, except for the creation of subchannels.
pub(crate) struct CreatorCx<'a, F> {
    cx: &'a mut dyn Cx,
    create: F,
    /// Every level asks for the time: it must not be fetched from the root again by each.
    now: Time,
}

impl<'a, F: FnMut(SubchannelSpec, &mut dyn Cx) -> SubchannelHandle> CreatorCx<'a, F> {
    /// The context of the children of a policy with the context `cx`, where `create` creates subchannels.
    pub(crate) fn new(cx: &'a mut dyn Cx, create: F) -> Self {
        let now = cx.now();
        Self { cx, create, now }
    }
}

impl<F: FnMut(SubchannelSpec, &mut dyn Cx) -> SubchannelHandle> Cx for CreatorCx<'_, F> {
    fn now(&self) -> Time {
        self.now
    }

    fn rng(&mut self) -> &mut Rng {
        self.cx.rng()
    }

    fn create_subchannel(&mut self, spec: SubchannelSpec) -> SubchannelHandle {
        (self.create)(spec, self.cx)
    }

    fn connect(&mut self, subchannel: &SubchannelHandle) {
        self.cx.connect(subchannel);
    }

    fn watch_load(&mut self, subchannel: &SubchannelHandle, interval: Option<Duration>) {
        self.cx.watch_load(subchannel, interval);
    }

    fn connection_limits_changed(&mut self) {
        self.cx.connection_limits_changed();
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

    fn meter(&self) -> &Meter {
        self.cx.meter()
    }
}
