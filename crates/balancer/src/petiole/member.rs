//! One endpoint of a petiole policy with its `pick_first`.

use std::sync::Arc;

use proxyless_sans_io::Time;

use super::Connect;
use crate::api::{
    ChildCx, ChildIndex, ChildOutput, ConnectivityState, Cx, Endpoint, EndpointView, PickError, Picker,
    Policy as _, QueuePicker, Reresolution, SubchannelHandle,
};
use crate::policies::pick_first::PickFirst;

/// An endpoint and its child. There may be very many, so it stores nothing that could be shared.
pub(crate) struct Member {
    pub(super) endpoint: Arc<Endpoint>,
    index: ChildIndex,
    state: ConnectivityState,
    output: ChildOutput,
    /// The child, once it should connect.
    child: Option<Box<PickFirst>>,
}

impl Member {
    /// A member without a child; `queue` is the picker until the child has one.
    pub(super) fn new(index: ChildIndex, endpoint: Arc<Endpoint>, queue: &Arc<QueuePicker>) -> Self {
        let picker = Arc::clone(queue) as Arc<dyn Picker>;
        let output = ChildOutput { state: ConnectivityState::Connecting, picker, dirty: false };
        Self { endpoint, index, state: ConnectivityState::Idle, output, child: None }
    }

    /// The endpoint.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The index of its child, constant while the endpoint exists.
    pub(crate) fn index(&self) -> ChildIndex {
        self.index
    }

    /// The state in the aggregation.
    pub(crate) fn state(&self) -> ConnectivityState {
        self.state
    }

    /// The child's picker; meaningless until the child has been told to connect.
    pub(crate) fn picker(&self) -> &Arc<dyn Picker> {
        &self.output.picker
    }

    /// Visits the subchannels of its child.
    pub(crate) fn subchannels(&self, visit: &mut dyn FnMut(&SubchannelHandle)) {
        if let Some(child) = &self.child {
            child.subchannels(visit);
        }
    }

    /// The error that the child fails RPCs with, if any.
    pub(crate) fn error(&self) -> Option<Arc<PickError>> {
        self.picker().failure().cloned()
    }

    /// Whether the child has its endpoint, and so connects.
    pub(super) fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// Makes the child connect to the endpoint.
    pub(super) fn start(&mut self, cx: &mut dyn Cx) {
        let endpoint = Arc::clone(&self.endpoint);
        self.child.get_or_insert_default();
        self.call(cx, |child, cx| child.use_endpoint(endpoint, cx));
    }

    /// Applies an update of the same endpoint.
    pub(super) fn renew(&mut self, endpoint: &Arc<Endpoint>, cx: &mut dyn Cx) {
        if Arc::ptr_eq(&self.endpoint, endpoint) {
            return;
        }
        let news = !equivalent_for_child(&self.endpoint, endpoint);
        self.endpoint = Arc::clone(endpoint);
        if news && self.is_started() {
            self.start(cx);
        }
    }

    /// Calls the child, if there is one.
    pub(super) fn call(&mut self, cx: &mut dyn Cx, f: impl FnOnce(&mut PickFirst, &mut dyn Cx)) {
        if let Some(child) = &mut self.child {
            let reresolution = Reresolution::Forwarded;
            f(child, &mut ChildCx { parent: cx, index: self.index, output: &mut self.output, reresolution });
        }
    }

    /// Reads the child's output; returns false if nothing was published.
    pub(super) fn look(&mut self, connect: Connect, cx: &mut dyn Cx) -> bool {
        if !std::mem::take(&mut self.output.dirty) {
            return false;
        }
        if connect == Connect::Always && self.output.state == ConnectivityState::Idle {
            // A61: pick_first is IDLE after a disconnect, and no RPC would wake it, since RPCs go to other endpoints.
            self.call(cx, |child, cx| child.exit_idle(cx));
            self.output.dirty = false;
        }
        let sticky = connect == Connect::Always && self.state == ConnectivityState::TransientFailure;
        if !sticky || self.output.state == ConnectivityState::Ready {
            self.state = self.output.state;
        }
        true
    }

    pub(super) fn describe(&self, now: Time) -> EndpointView {
        let mut node = EndpointView::new(&self.endpoint, self.state);
        node.error = self.error().map(|error| error.message.clone());
        let below = self.child.as_ref().map(|child| child.describe(now).endpoints);
        for found in below.into_iter().flatten() {
            node.connected = node.connected.or(found.connected);
            node.calls += found.calls;
        }
        node
    }
}

/// Weights concern only the petiole policy: a new weight does not update the child.
fn equivalent_for_child(a: &Endpoint, b: &Endpoint) -> bool {
    let Endpoint { addresses, weight: _, health, locality, security, extras } = a;
    *addresses == b.addresses
        && *health == b.health
        && *locality == b.locality
        && *security == b.security
        && *extras == b.extras
}
