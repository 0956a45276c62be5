//! What petiole policies share (gRFC A61): one `pick_first` child for each endpoint, kept over updates as long as the
//! endpoint has the same addresses in whatever order, and a count of the children's states.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_sans_io::Time;

use super::pick_first::PickFirstConfig;
use crate::api::{
    Child, ChildIndex, ConnectivityState, Cx, Endpoint, EndpointNode, Endpoints, PickError, Picker,
    PolicyConfig, PolicyNode, Route, SubchannelEvent, Update,
};

/// What makes an endpoint the same over updates: its addresses, in no order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointKey(Box<[SocketAddr]>);

impl EndpointKey {
    /// The key of an endpoint.
    #[must_use]
    pub fn of(endpoint: &Endpoint) -> Self {
        let mut addresses = endpoint.addresses.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        Self(addresses.into())
    }
}

impl fmt::Display for EndpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.0.iter().enumerate() {
            write!(f, "{}{address}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// When children connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// At once, and again whenever they become IDLE; a child in TRANSIENT_FAILURE counts as such until it is READY.
    Always,
    /// When [`Petiole::connect`] says so: a child counts as IDLE before; its own states count as they are.
    OnDemand,
}

/// The children of a petiole policy, in the order of the endpoints.
pub struct Petiole {
    connect: Connect,
    config: Arc<dyn PolicyConfig>,
    members: Vec<Member>,
    by_key: BTreeMap<EndpointKey, usize>,
    by_index: BTreeMap<ChildIndex, usize>,
    counts: StateCounts,
    next: u32,
}

/// An endpoint and its child.
pub struct Member {
    endpoint: Endpoint,
    child: Child,
    /// Whether the child was given its endpoint: from then on it connects.
    started: bool,
    state: ConnectivityState,
}

impl Member {
    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The name of its child, the same as long as the endpoint exists.
    #[must_use]
    pub fn index(&self) -> ChildIndex {
        self.child.index()
    }

    /// The state that it counts with.
    #[must_use]
    pub fn state(&self) -> ConnectivityState {
        self.state
    }

    /// The child's picker; means nothing while the child has not been told to connect.
    #[must_use]
    pub fn picker(&self) -> &Arc<dyn Picker> {
        &self.child.output().picker
    }

    /// The error that the child fails RPCs with, if it does.
    #[must_use]
    pub fn error(&self) -> Option<Arc<PickError>> {
        self.picker().failure().cloned()
    }
}

/// How many children are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names are those of the states
pub struct StateCounts {
    pub idle: usize,
    pub connecting: usize,
    pub ready: usize,
    pub transient_failure: usize,
}

impl StateCounts {
    /// The state of a policy whose children always connect: READY if any is, else CONNECTING if any is (IDLE is on its
    /// way there), else TRANSIENT_FAILURE.
    #[must_use]
    pub fn aggregate(&self) -> ConnectivityState {
        if self.ready > 0 {
            ConnectivityState::Ready
        } else if self.connecting + self.idle > 0 {
            ConnectivityState::Connecting
        } else {
            ConnectivityState::TransientFailure
        }
    }

    fn of(&mut self, state: ConnectivityState) -> &mut usize {
        match state {
            ConnectivityState::Idle => &mut self.idle,
            ConnectivityState::Connecting => &mut self.connecting,
            ConnectivityState::Ready => &mut self.ready,
            ConnectivityState::TransientFailure => &mut self.transient_failure,
        }
    }
}

/// A child published something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The child's place among [`Petiole::members`].
    pub position: usize,
    /// The state that it counted with before.
    pub was: ConnectivityState,
    /// The state that it counts with now.
    pub now: ConnectivityState,
}

impl Change {
    /// Whether a picker that contains the READY children must be built anew.
    #[must_use]
    pub fn touches_ready(&self) -> bool {
        self.was == ConnectivityState::Ready || self.now == ConnectivityState::Ready
    }
}

impl Petiole {
    /// No children yet.
    #[must_use]
    pub fn new(connect: Connect) -> Self {
        Self {
            connect,
            config: Arc::new(PickFirstConfig::for_petiole()),
            members: Vec::new(),
            by_key: BTreeMap::new(),
            by_index: BTreeMap::new(),
            counts: StateCounts::default(),
            next: 0,
        }
    }

    /// The children, in the order of the endpoints of the last update.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The child of this name, if it still exists.
    #[must_use]
    pub fn member(&self, index: ChildIndex) -> Option<&Member> {
        self.members.get(*self.by_index.get(&index)?)
    }

    /// How many children are in which state.
    #[must_use]
    pub fn counts(&self) -> &StateCounts {
        &self.counts
    }

    /// Makes a child for each new endpoint, drops those whose endpoints are gone, updates the rest. Of endpoints with
    /// the same addresses only the first counts. Resolution notes are the policy's own to add to its errors.
    pub fn update(&mut self, endpoints: &Endpoints, cx: &mut dyn Cx) {
        let mut old: Vec<_> = std::mem::take(&mut self.members).into_iter().map(Some).collect();
        let old_keys = std::mem::take(&mut self.by_key);
        self.by_index.clear();
        self.counts = StateCounts::default();
        endpoints.flatten(&mut |endpoint| {
            let key = EndpointKey::of(endpoint);
            if self.by_key.contains_key(&key) {
                return;
            }
            // A61: the order of the addresses does not make it another endpoint.
            let kept = old_keys.get(&key).and_then(|&at| old.get_mut(at)?.take());
            let member = self.updated(kept, endpoint, cx);
            let position = self.members.len();
            self.by_key.insert(key, position);
            self.by_index.insert(member.index(), position);
            *self.counts.of(member.state) += 1;
            self.members.push(member);
        });
    }

    /// Hands an event to the child that it is for. `None` if that is gone or has nothing new to say.
    pub fn on_subchannel(
        &mut self,
        route: Route<'_>,
        event: &SubchannelEvent,
        cx: &mut dyn Cx,
    ) -> Option<Change> {
        let (index, rest) = route.next()?;
        self.call(index, cx, |child, cx| child.on_subchannel(rest, event, cx))
    }

    /// Hands a timer to the child that it is for; `None` also if it is the policy's own.
    pub fn on_timer(&mut self, route: Route<'_>, token: u32, cx: &mut dyn Cx) -> Option<Change> {
        let (index, rest) = route.next()?;
        self.call(index, cx, |child, cx| child.on_timer(rest, token, cx))
    }

    /// Hands a signal to the child that it is for; `None` also if it is the policy's own.
    pub fn on_signal(&mut self, route: Route<'_>, token: u32, cx: &mut dyn Cx) -> Option<Change> {
        let (index, rest) = route.next()?;
        self.call(index, cx, |child, cx| child.on_signal(rest, token, cx))
    }

    /// Makes a child connect if it is IDLE.
    pub fn connect(&mut self, index: ChildIndex, cx: &mut dyn Cx) -> Option<Change> {
        let member = self.members.get_mut(*self.by_index.get(&index)?)?;
        let start = (!std::mem::replace(&mut member.started, true))
            .then(|| child_update(&self.config, &member.endpoint));
        self.call(index, cx, |child, cx| match start {
            Some(update) => start_child(child, &update, cx),
            None => child.exit_idle(cx),
        })
    }

    /// The endpoints, for people. Their pick_first policies are left out: an endpoint says all that they would.
    #[must_use]
    pub fn describe(&self, now: Time) -> PolicyNode {
        let endpoints = self.members.iter().map(|member| member.describe(now)).collect();
        PolicyNode { endpoints, ..PolicyNode::default() }
    }

    fn updated(&mut self, kept: Option<Member>, endpoint: &Endpoint, cx: &mut dyn Cx) -> Member {
        let fresh = kept.is_none();
        let mut member = kept.unwrap_or_else(|| {
            self.next += 1;
            Member {
                endpoint: endpoint.clone(),
                child: Child::new(ChildIndex(self.next - 1), &self.config),
                started: self.connect == Connect::Always,
                state: ConnectivityState::Idle,
            }
        });
        if member.started && (fresh || member.endpoint != *endpoint) {
            start_child(&mut member.child, &child_update(&self.config, endpoint), cx);
        }
        member.endpoint.clone_from(endpoint);
        member.look(self.connect, cx);
        member
    }

    fn call(
        &mut self,
        index: ChildIndex,
        cx: &mut dyn Cx,
        call: impl FnOnce(&mut Child, &mut dyn Cx),
    ) -> Option<Change> {
        let position = *self.by_index.get(&index)?;
        let member = self.members.get_mut(position)?;
        call(&mut member.child, cx);
        let was = member.state;
        if !member.look(self.connect, cx) {
            return None;
        }
        let now = member.state;
        *self.counts.of(was) -= 1;
        *self.counts.of(now) += 1;
        Some(Change { position, was, now })
    }
}

impl Member {
    fn describe(&self, now: Time) -> EndpointNode {
        let mut node = EndpointNode::new(&self.endpoint, self.state);
        node.error = self.error().map(|error| error.message.clone());
        let below = if self.started { self.child.describe(now).endpoints } else { Vec::new() };
        for found in below {
            node.connected = node.connected.or(found.connected);
            node.calls += found.calls;
        }
        node
    }

    /// Looks at what the child published; false if nothing.
    fn look(&mut self, connect: Connect, cx: &mut dyn Cx) -> bool {
        if !self.started || !self.child.take_dirty() {
            return false;
        }
        if connect == Connect::Always && self.child.output().state == ConnectivityState::Idle {
            // A61: pick_first is IDLE after a disconnect; no RPC would wake it, since they go to the others.
            self.child.exit_idle(cx);
            self.child.take_dirty();
        }
        let state = self.child.output().state;
        let sticky = connect == Connect::Always && self.state == ConnectivityState::TransientFailure;
        if !sticky || state == ConnectivityState::Ready {
            self.state = state;
        }
        true
    }
}

fn child_update(config: &Arc<dyn PolicyConfig>, endpoint: &Endpoint) -> Update {
    Update::new(Arc::clone(config), Endpoints::List(Arc::new([endpoint.clone()])))
}

/// Updates a child; it cannot refuse, for the configuration is pick_first's own.
fn start_child(child: &mut Child, update: &Update, cx: &mut dyn Cx) {
    if let Err(error) = child.update(update, cx) {
        tracing::error!(target: "pick_first", %error, "pick_first refused an update");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{address, endpoint_at};

    #[test]
    fn a61_key_is_the_set_of_addresses() {
        let key = |numbers: &[u16]| {
            EndpointKey::of(&endpoint_at(&numbers.iter().map(|&n| address(n)).collect::<Vec<_>>()))
        };
        assert_eq!(key(&[1, 2]), key(&[2, 1]));
        assert_eq!(key(&[1, 2]), key(&[2, 1, 2]));
        assert_ne!(key(&[1, 2]), key(&[1]));
    }

    #[test]
    fn aggregate_is_ready_then_connecting_then_transient_failure() {
        let counts = |idle, connecting, ready, transient_failure| {
            StateCounts { idle, connecting, ready, transient_failure }.aggregate()
        };
        assert_eq!(counts(1, 1, 1, 1), ConnectivityState::Ready);
        assert_eq!(counts(0, 1, 0, 1), ConnectivityState::Connecting);
        assert_eq!(counts(1, 0, 0, 1), ConnectivityState::Connecting);
        assert_eq!(counts(0, 0, 0, 1), ConnectivityState::TransientFailure);
        assert_eq!(counts(0, 0, 0, 0), ConnectivityState::TransientFailure);
    }
}
