//! The policy: when it searches, how it uses the result, and what it publishes.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use proxyless_sans_io::{Rng, Time};

use super::PickFirstConfig;
use super::addresses::{Address, AddressList, flatten};
use super::attempt::{Attempt, Candidate, Progress};
use super::picker::TargetPicker;
use crate::api::{
    ConfigError, ConnectivityState, Cx, Endpoint, EndpointView, FailPicker, PickError, Policy, PolicyView,
    QueuePicker, Signal, SubchannelEvent, SubchannelHandle, SubchannelSpec, TreeEvent, TreePath, TreePathBuf,
    Update, config_of,
};

/// The policy `pick_first`.
pub struct PickFirst {
    config: Arc<PickFirstConfig>,
    note: Option<Arc<str>>,
    list: AddressList,
    phase: Phase,
    /// Whether TRANSIENT_FAILURE was published and no connection was selected since.
    failing: bool,
}

#[derive(Default)]
enum Phase {
    /// No addresses.
    #[default]
    Empty,
    /// Waits for an RPC or the parent.
    Idle { _signal: Signal },
    /// Searches for a connection.
    /// Boxed, because it is large and most endpoints are connected.
    Searching(Box<Attempt>),
    /// Has selected a connection.
    Selected { subchannel: SubchannelHandle, health: ConnectivityState },
}

impl Default for PickFirst {
    fn default() -> Self {
        static CONFIG: LazyLock<Arc<PickFirstConfig>> = LazyLock::new(Arc::default);
        let config = Arc::clone(&CONFIG);
        Self { config, note: None, list: AddressList::default(), phase: Phase::default(), failing: false }
    }
}

impl Policy for PickFirst {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        self.config = Arc::new(config_of::<PickFirstConfig>("pick_first", &update.config)?.clone());
        self.note.clone_from(&update.resolution_note);
        let mut endpoints = Vec::with_capacity(update.endpoints.count());
        update.endpoints.flatten(&mut |endpoint| endpoints.push(Arc::clone(endpoint)));
        if self.config.shuffle_address_list {
            // A62: each update is shuffled; A61: by endpoint, preserving the order of each endpoint's addresses.
            shuffle(&mut endpoints, cx.rng());
        }
        self.use_list(flatten(&endpoints), cx);
        Ok(())
    }

    fn on_event(&mut self, _: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        match event {
            TreeEvent::Subchannel(event) => self.on_subchannel(event, cx),
            TreeEvent::Timer(_) => {
                let delay = self.config.attempt_delay();
                if let Phase::Searching(attempt) = &mut self.phase {
                    let progress = attempt.on_timer(delay, cx);
                    self.progress(progress, cx);
                }
            }
            TreeEvent::Signal(_) => self.exit_idle(cx),
            TreeEvent::Load(_) => {}
        }
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        if matches!(self.phase, Phase::Idle { .. }) {
            self.search(Vec::new(), None, cx);
        }
    }

    fn describe(&self, _: Time) -> PolicyView {
        let endpoints = self.list.iter().map(|address| self.describe_address(&address)).collect();
        PolicyView { endpoints, ..PolicyView::default() }
    }
}

impl PickFirst {
    /// Connects to this endpoint as the child of a petiole policy, without building an update.
    pub(crate) fn use_endpoint(&mut self, endpoint: Arc<Endpoint>, cx: &mut dyn Cx) {
        if !self.config.petiole {
            static PETIOLE: LazyLock<Arc<PickFirstConfig>> =
                LazyLock::new(|| Arc::new(PickFirstConfig::for_petiole()));
            self.config = Arc::clone(&PETIOLE);
        }
        self.use_list(flatten(&[endpoint]), cx);
    }

    /// Visits the subchannels that it holds.
    pub(crate) fn subchannels(&self, visit: &mut dyn FnMut(&SubchannelHandle)) {
        match &self.phase {
            Phase::Searching(attempt) => attempt.candidates().iter().for_each(|c| visit(&c.subchannel)),
            Phase::Selected { subchannel, .. } => visit(subchannel),
            Phase::Empty | Phase::Idle { .. } => {}
        }
    }

    fn on_subchannel(&mut self, event: &SubchannelEvent, cx: &mut dyn Cx) {
        let delay = self.config.attempt_delay();
        match &mut self.phase {
            Phase::Searching(attempt) => {
                let progress = attempt.on_subchannel(event, delay, cx);
                self.progress(progress, cx);
            }
            Phase::Selected { subchannel, health } if subchannel.id() == event.subchannel => {
                match event.state {
                    ConnectivityState::Ready if *health == event.health => {}
                    ConnectivityState::Ready => {
                        *health = event.health;
                        self.publish_selected(event.error.as_deref(), cx);
                    }
                    ConnectivityState::Idle => self.lost(cx),
                    // A105-19: it attempts another connection, or is in backoff after such an attempt.
                    state => self.search_again(state, event.error.clone(), cx),
                }
            }
            Phase::Empty | Phase::Idle { .. } | Phase::Selected { .. } => {}
        }
    }

    fn use_list(&mut self, list: AddressList, cx: &mut dyn Cx) {
        self.list = list;
        if self.list.is_empty() {
            self.phase = Phase::Empty;
            cx.request_reresolution();
            self.publish_failure("no addresses", cx);
            return;
        }
        match std::mem::take(&mut self.phase) {
            idle @ Phase::Idle { .. } => self.phase = idle,
            Phase::Selected { subchannel, health } => self.reselect(subchannel, health, cx),
            Phase::Searching(attempt) => self.search(attempt.into_candidates(), None, cx),
            Phase::Empty => self.search(Vec::new(), None, cx),
        }
    }

    /// Searches for a connection among the addresses, reusing subchannels of the previous search. `error` is that of the
    /// one that has failed, if any.
    fn search(&mut self, old: Vec<Candidate>, error: Option<Arc<PickError>>, cx: &mut dyn Cx) {
        let mut candidates = self.candidates(old, cx);
        if let Some(at) = candidates.iter().position(|c| c.subchannel.target().slot.is_connected()) {
            self.select(candidates.swap_remove(at).subchannel, ConnectivityState::Ready, None, cx);
            return;
        }
        // A62: sticky TRANSIENT_FAILURE.
        if !self.failing {
            // Under a petiole policy there are very many, and the picker is not used.
            static SHARED: LazyLock<Arc<QueuePicker>> = LazyLock::new(QueuePicker::new);
            let picker = if self.config.petiole { Arc::clone(&SHARED) } else { QueuePicker::new() };
            cx.publish(ConnectivityState::Connecting, picker);
        }
        // A61: every new address list gets its own first pass.
        let mut attempt = Attempt::new(candidates, error);
        let progress = attempt.step(self.config.attempt_delay(), cx);
        self.phase = Phase::Searching(Box::new(attempt));
        self.progress(progress, cx);
    }

    /// The subchannels of the address list.
    fn candidates(&self, old: Vec<Candidate>, cx: &mut dyn Cx) -> Vec<Candidate> {
        let mut old: BTreeMap<_, _> = old.into_iter().map(|c| (c.subchannel.target().address, c)).collect();
        self.list
            .iter()
            .map(|address| {
                match old.remove(&address.address).filter(|old| same_connection(&old.subchannel, &address)) {
                    Some(Candidate { subchannel, state, .. }) => {
                        Candidate::new(renew(subchannel, &address, cx), state)
                    }
                    None => Candidate::new(create(&address, cx), ConnectivityState::Idle),
                }
            })
            .collect()
    }

    fn progress(&mut self, progress: Progress, cx: &mut dyn Cx) {
        match progress {
            Progress::Searching => {}
            Progress::Found { subchannel, health, error } => {
                self.select(subchannel, health, error.as_deref(), cx)
            }
            Progress::Failed(error) => {
                // A61: requests re-resolution, reports TRANSIENT_FAILURE, and continues.
                cx.request_reresolution();
                let error = error.as_ref().map_or("no attempt was made", |error| &error.message);
                if self.config.petiole {
                    self.publish_failure(error, cx);
                } else {
                    self.publish_failure(
                        &format!("failed to connect to all addresses; last error: {error}"),
                        cx,
                    );
                }
            }
        }
    }

    /// Selects a connection. The other subchannels are dropped with the search (A61), and so is its timer.
    fn select(
        &mut self,
        subchannel: SubchannelHandle,
        health: ConnectivityState,
        error: Option<&PickError>,
        cx: &mut dyn Cx,
    ) {
        self.phase = Phase::Selected { subchannel, health };
        self.failing = false;
        self.publish_selected(error, cx);
    }

    /// Handles an update while connected.
    fn reselect(&mut self, subchannel: SubchannelHandle, health: ConnectivityState, cx: &mut dyn Cx) {
        let target = Arc::clone(subchannel.target());
        let listed = self.list.iter().find(|address| same_connection(&subchannel, address));
        if let Some(address) = listed {
            let subchannel = renew(subchannel, &address, cx);
            let renewed = !Arc::ptr_eq(subchannel.target(), &target);
            self.phase = Phase::Selected { subchannel, health };
            // Health other than READY stays published; if it changed, the first event of the new subchannel reports it.
            if renewed && (health == ConnectivityState::Ready || !self.config.petiole) {
                self.publish_selected(None, cx);
            }
            return;
        }
        let mut candidates = self.candidates(Vec::new(), cx);
        drop(subchannel);
        match candidates.iter().position(|c| c.subchannel.target().slot.is_connected()) {
            Some(at) => {
                self.select(candidates.swap_remove(at).subchannel, ConnectivityState::Ready, None, cx)
            }
            // As in all implementations: a connection that is not in the new list is dropped, and an RPC or the parent
            // starts the search.
            None => self.go_idle(cx),
        }
    }

    /// The selected subchannel has left READY for this state: starts a new pass over all addresses.
    fn search_again(&mut self, state: ConnectivityState, error: Option<Arc<PickError>>, cx: &mut dyn Cx) {
        let Phase::Selected { subchannel, .. } = std::mem::take(&mut self.phase) else { return };
        cx.request_reresolution();
        self.search(vec![Candidate::new(subchannel, state)], error, cx);
    }

    /// The selected connection was lost: waits for an RPC or the parent.
    fn lost(&mut self, cx: &mut dyn Cx) {
        cx.request_reresolution();
        self.go_idle(cx);
    }

    fn go_idle(&mut self, cx: &mut dyn Cx) {
        let signal = cx.create_signal(TreePathBuf::default(), 0);
        cx.publish(ConnectivityState::Idle, QueuePicker::waking(signal.raiser()));
        self.phase = Phase::Idle { _signal: signal };
    }

    fn publish_selected(&mut self, error: Option<&PickError>, cx: &mut dyn Cx) {
        let Phase::Selected { subchannel, health } = &self.phase else { return };
        // A61: health applies only under a petiole policy.
        let state = if self.config.petiole { *health } else { ConnectivityState::Ready };
        match state {
            ConnectivityState::Ready => cx.publish(state, TargetPicker::new(subchannel.target())),
            ConnectivityState::Idle | ConnectivityState::Connecting => {
                cx.publish(ConnectivityState::Connecting, QueuePicker::new());
            }
            ConnectivityState::TransientFailure => {
                let why = error.map_or("the connection is unhealthy", |error| &error.message);
                let error = PickError::with_note(why, self.note.as_ref());
                cx.publish(state, FailPicker::new(error));
            }
        }
    }

    fn publish_failure(&mut self, why: &str, cx: &mut dyn Cx) {
        self.failing = true;
        let error = PickError::with_note(why, self.note.as_ref());
        cx.publish(ConnectivityState::TransientFailure, FailPicker::new(error));
    }

    /// One line per address, since each has its own connection.
    fn describe_address(&self, address: &Address) -> EndpointView {
        let of_address = |subchannel: &SubchannelHandle| subchannel.target().address == address.address;
        let (state, subchannel) = match &self.phase {
            Phase::Searching(attempt) => {
                match attempt.candidates().iter().find(|c| of_address(&c.subchannel)) {
                    Some(candidate) => (candidate.state, Some(&candidate.subchannel)),
                    None => (ConnectivityState::Idle, None),
                }
            }
            Phase::Selected { subchannel, health } if of_address(subchannel) => (*health, Some(subchannel)),
            _ => (ConnectivityState::Idle, None),
        };
        let mut node = EndpointView::new(&address.endpoint, state);
        node.addresses = vec![address.address];
        if let Some(subchannel) = subchannel {
            let slot = &subchannel.target().slot;
            node.connected = slot.is_connected().then_some(address.address);
            node.calls = slot.calls().counts();
        }
        node
    }
}

fn create(address: &Address, cx: &mut dyn Cx) -> SubchannelHandle {
    cx.create_subchannel(SubchannelSpec::new(address.address, Arc::clone(&address.endpoint)))
}

/// A113-01: a random order by weight. The key of the text is u^(1/weight), descending; its negated logarithm has the
/// same order and is exact for large weights.
fn shuffle(endpoints: &mut Vec<Arc<Endpoint>>, rng: &mut Rng) {
    let mut keyed: Vec<_> = std::mem::take(endpoints)
        .into_iter()
        .map(|endpoint| {
            // Above 0 and up to 1.
            let drawn = 1.0 - rng.unit();
            (-drawn.ln() / f64::from(endpoint.weight.max(1)), endpoint)
        })
        .collect();
    keyed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    endpoints.extend(keyed.into_iter().map(|(_, endpoint)| endpoint));
}

/// Whether the address can use the connection of a subchannel. A29-09, A86-13: not if it is secured differently, or
/// goes through another proxy.
fn same_connection(subchannel: &SubchannelHandle, address: &Address) -> bool {
    let target = subchannel.target();
    target.address == address.address
        && target.endpoint.security == address.endpoint.security
        && target.endpoint.proxy() == address.endpoint.proxy()
}

/// The same subchannel, or one with a new target if the parts of the endpoint that calls use changed. The connection
/// stays.
fn renew(subchannel: SubchannelHandle, address: &Address, cx: &mut dyn Cx) -> SubchannelHandle {
    if equivalent_for_calls(&subchannel.target().endpoint, &address.endpoint) {
        subchannel
    } else {
        create(address, cx)
    }
}

/// Weights and the order of addresses concern policies, not calls: changing them keeps the target.
fn equivalent_for_calls(a: &Endpoint, b: &Endpoint) -> bool {
    a.hostname() == b.hostname()
        && a.hash_key() == b.hash_key()
        && a.health == b.health
        && a.locality == b.locality
}
