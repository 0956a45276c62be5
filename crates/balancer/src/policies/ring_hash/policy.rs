//! The ring_hash policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;
use proxyless_sans_io::Time;

use super::config::RingHashConfig;
use super::picker::{EndpointState, RingPicker};
use super::ring::Ring;
use super::weights::Weights;
use crate::api::{
    ChildIndex, ConfigError, ConnectivityState, Cx, Deferred, FailPicker, PickError, Policy, PolicyView,
    Signal, TreeEvent, TreePath, TreePathBuf, Update, config_of,
};
use crate::petiole::{Change, Connect, Member, Petiole, StateCounts};

const NAME: &str = "ring_hash_experimental";

/// The tag of the policy's own signal; child indices never reach it.
const SETTLE: u32 = u32::MAX;

/// The policy `ring_hash_experimental`.
pub struct RingHash {
    /// The children of the endpoints. A61: pick_first connects on its first update, which is therefore deferred until
    /// requested.
    petiole: Petiole,
    ring: Option<Arc<Ring>>,
    /// The states of the petiole's members for picks, in the same order.
    states: Vec<Arc<EndpointState>>,
    /// Raised by picks that reach an IDLE endpoint.
    signals: BTreeMap<ChildIndex, Signal>,
    resolution_note: Option<Arc<str>>,
    request_hash_header: Option<HeaderName>,
    /// Requested when endpoints have changed: the changes are processed together at the end of the input.
    unsettled: Deferred,
    published: Option<(ConnectivityState, Arc<RingPicker>)>,
}

impl Default for RingHash {
    fn default() -> Self {
        Self {
            petiole: Petiole::new(Connect::OnDemand),
            ring: None,
            states: Vec::new(),
            signals: BTreeMap::new(),
            resolution_note: None,
            request_hash_header: None,
            unsettled: Deferred::default(),
            published: None,
        }
    }
}

impl Policy for RingHash {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &RingHashConfig = match config_of(NAME, &update.config) {
            Ok(config) => config,
            Err(error) => {
                if self.ring.is_none() {
                    fail(PickError::unavailable(error.to_string()), cx);
                }
                return Err(error);
            }
        };
        self.resolution_note.clone_from(&update.resolution_note);
        self.request_hash_header.clone_from(&config.request_hash_header);
        self.petiole.update(&update.endpoints, cx);
        self.update_signals(cx);
        self.update_states();
        if self.petiole.members().is_empty() {
            self.ring = None;
            self.published = None;
            fail(PickError::with_note("empty address list", self.resolution_note.as_ref()), cx);
            cx.request_reresolution();
            return Ok(());
        }
        let weights = Weights::of(&update.endpoints);
        let members: Vec<_> =
            self.petiole.members().iter().map(|member| weights.member(member.endpoint())).collect();
        if !self.ring.as_ref().is_some_and(|ring| ring.is_built_from(&members, config)) {
            self.ring = Some(Arc::new(Ring::new(members, config)));
        }
        self.settle(cx);
        Ok(())
    }

    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        let change = match (path.next(), event) {
            (Some(_), _) => self.petiole.on_event(path, event, cx),
            (None, TreeEvent::Signal(SETTLE)) => {
                if self.unsettled.take() {
                    self.settle(cx);
                }
                return;
            }
            (None, TreeEvent::Signal(tag)) => self.on_connection_request(ChildIndex(tag), cx),
            (None, _) => return,
        };
        self.on_change(change, cx);
    }

    // A42: only picks and failures of other endpoints make an endpoint connect.
    fn exit_idle(&mut self, _: &mut dyn Cx) {}

    fn describe(&self, now: Time) -> PolicyView {
        self.petiole.describe(now)
    }
}

impl RingHash {
    /// A pick reached an IDLE endpoint, which may have left IDLE since.
    fn on_connection_request(&mut self, index: ChildIndex, cx: &mut dyn Cx) -> Option<Change> {
        let idle = self.petiole.member(index)?.state() == ConnectivityState::Idle;
        let change = idle.then(|| self.petiole.connect(index, cx)).flatten();
        if let Some(signal) = self.signals.get(&index) {
            signal.lower();
        }
        change
    }

    fn on_change(&mut self, change: Option<Change>, cx: &mut dyn Cx) {
        if let Some(change) = change {
            self.update_state(change.position);
            self.unsettled.request(SETTLE, cx);
        }
    }

    fn update_signals(&mut self, cx: &mut dyn Cx) {
        let mut old = std::mem::take(&mut self.signals);
        for member in self.petiole.members() {
            let index = member.index();
            let signal =
                old.remove(&index).unwrap_or_else(|| cx.create_signal(TreePathBuf::default(), index.0));
            self.signals.insert(index, signal);
        }
    }

    fn update_states(&mut self) {
        let old = std::mem::take(&mut self.states);
        let states: Vec<_> = self.petiole.members().iter().filter_map(|member| self.state(member)).collect();
        // Unchanged states keep their pointer, so that an update without effect is recognised.
        let keep = |(at, state): (usize, EndpointState)| match old.get(at) {
            Some(old) if **old == state => Arc::clone(old),
            _ => Arc::new(state),
        };
        self.states = states.into_iter().enumerate().map(keep).collect();
    }

    fn update_state(&mut self, position: usize) {
        let state = self.petiole.members().get(position).and_then(|member| self.state(member));
        if let (Some(state), Some(slot)) = (state, self.states.get_mut(position))
            && **slot != state
        {
            *slot = Arc::new(state);
        }
    }

    /// The state of an endpoint for picks. Every member has a signal, so there always is one.
    fn state(&self, member: &Member) -> Option<EndpointState> {
        Some(match member.state() {
            ConnectivityState::Ready => EndpointState::Ready(Arc::clone(member.picker())),
            ConnectivityState::Idle => EndpointState::Idle(self.signals.get(&member.index())?.raiser()),
            ConnectivityState::Connecting => EndpointState::Connecting,
            ConnectivityState::TransientFailure => {
                let error = member.error();
                let why = error.as_ref().map_or("unknown", |error| error.message.as_str());
                let message = format!("ring hash cannot find a connected endpoint; first failure: {why}");
                EndpointState::Failed(PickError::with_note(message, self.resolution_note.as_ref()))
            }
        })
    }

    /// Starts the connection attempts that are due, then publishes, unless the parent has this picker already.
    fn settle(&mut self, cx: &mut dyn Cx) {
        // Each iteration takes an endpoint out of IDLE; the bound guards against children that do not leave it.
        for _ in 0..self.petiole.members().len() {
            if !needs_attempt(self.petiole.counts()) {
                break;
            }
            self.connect_one(cx);
        }
        let Some(ring) = &self.ring else { return };
        let state = aggregate(self.petiole.counts());
        let picker = RingPicker {
            ring: Arc::clone(ring),
            endpoints: self.states.iter().cloned().collect(),
            request_hash_header: self.request_hash_header.clone(),
            connecting: self.petiole.counts().connecting > 0,
        };
        if self.published.as_ref().is_none_or(|(old_state, old)| *old_state != state || **old != picker) {
            let picker = Arc::new(picker);
            self.published = Some((state, Arc::clone(&picker)));
            cx.publish(state, picker);
        }
    }

    /// Connects a random IDLE endpoint, so that clients do not all choose the same.
    fn connect_one(&mut self, cx: &mut dyn Cx) {
        let drawn = cx.rng().below(self.petiole.counts().idle as u64) as usize;
        let is_idle = |member: &&Member| member.state() == ConnectivityState::Idle;
        let index = self.petiole.members().iter().filter(is_idle).nth(drawn).map(Member::index);
        if let Some(change) = index.and_then(|index| self.petiole.connect(index, cx)) {
            self.update_state(change.position);
        }
    }
}

/// A42: the six rules of aggregation, in order.
pub(super) fn aggregate(counts: &StateCounts) -> ConnectivityState {
    let all = counts.idle + counts.connecting + counts.ready + counts.transient_failure;
    match counts {
        StateCounts { ready: 1.., .. } => ConnectivityState::Ready,
        StateCounts { transient_failure: 2.., .. } => ConnectivityState::TransientFailure,
        StateCounts { connecting: 1.., .. } => ConnectivityState::Connecting,
        StateCounts { transient_failure: 1, .. } if all > 1 => ConnectivityState::Connecting,
        StateCounts { idle: 1.., .. } => ConnectivityState::Idle,
        _ => ConnectivityState::TransientFailure,
    }
}

/// A61: a policy in CONNECTING or TRANSIENT_FAILURE may get no picks (priority fails over), so it connects on its own:
/// if no endpoint is connecting, an IDLE one must.
fn needs_attempt(counts: &StateCounts) -> bool {
    let trying =
        matches!(aggregate(counts), ConnectivityState::Connecting | ConnectivityState::TransientFailure);
    trying && counts.connecting == 0 && counts.idle > 0
}

fn fail(error: Arc<PickError>, cx: &mut dyn Cx) {
    cx.publish(ConnectivityState::TransientFailure, FailPicker::new(error));
}
