//! The task that samples, and its readings of the store and the channels.
//!
//! A sample reads the atomics of the store, which RPCs add to without noticing: with 1,000 series of endpoints a sample took
//! 0.8 ms in a release build on a busy machine with two cores, less than 0.1 % of the time. The views of channels have the
//! events and the errors of endpoints; they are built by the tasks of the channels, so they are taken each second only
//! while that costs less than 1 % of the time, and else less often.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use proxyless::ClientPool;
use proxyless::inspect::{ChannelView, PolicyView};
use proxyless::telemetry::{Instrument, Label, LabelValue, instruments};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, MissedTickBehavior};

use super::Question;
use super::answer::{HistoryMark, HistoryView};
use super::marks::MarkKind;
use super::recording::{Key, Reading, Recording, SAMPLES, Seen, SeenChannel};
use crate::MetricStore;
use crate::resources::unix_seconds;

/// The time between two samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time between two views is at least the time that a view takes, so many times.
const SPARE: u32 = 100;

/// A sampler that a request has started ends after this time without another.
const UNUSED: Duration = Duration::from_secs(SAMPLES as u64);

/// The history of the channels of a pool. Clones share it.
#[derive(Clone)]
pub(crate) struct History(Arc<Shared>);

struct Shared {
    clients: ClientPool,
    store: MetricStore,
    state: Mutex<State>,
}

struct State {
    recording: Recording,
    sampler: Option<JoinHandle<()>>,
    /// The last request.
    asked: Instant,
}

/// The sampler of a server; dropping this ends it.
#[derive(Debug)]
pub(crate) struct Sampling(AbortHandle);

impl Drop for Sampling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl History {
    /// A history that begins when it is first asked for, or by [`History::start`].
    pub(crate) fn new(clients: ClientPool, store: MetricStore) -> Self {
        let recording = Recording::new(unix_seconds(SystemTime::now()));
        let state = Mutex::new(State { recording, sampler: None, asked: Instant::now() });
        Self(Arc::new(Shared { clients, store, state }))
    }

    /// Samples for as long as the returned value exists, so that the first reader sees the time before it too.
    pub(crate) fn start(&self) -> Sampling {
        let task = tokio::spawn(Arc::clone(&self.0).sample(None));
        let sampling = Sampling(task.abort_handle());
        self.0.state().sampler = Some(task);
        sampling
    }

    /// The answer to a question. Starts a sampler unless there is one: in the routes of another server, whose end is not
    /// known here, it runs while it is asked.
    pub(crate) fn view(&self, question: Question) -> HistoryView {
        let mut state = self.0.state();
        state.asked = Instant::now();
        if state.sampler.as_ref().is_none_or(JoinHandle::is_finished) {
            // Times in which nothing was sampled would look like times without RPCs.
            state.recording = Recording::new(unix_seconds(SystemTime::now()));
            state.sampler = Some(tokio::spawn(Arc::clone(&self.0).sample(Some(UNUSED))));
        }
        state.recording.view(question)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // The recording is consistent even if a holder panicked: at worst it lacks a sample.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Samples each second, until nobody has asked for so long.
    async fn sample(self: Arc<Self>, unused: Option<Duration>) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_view = Instant::now();
        loop {
            let began = ticks.tick().await;
            let seen = if began >= next_view {
                let seen = seen(&self.clients.channels().await);
                next_view = began + began.elapsed() * SPARE;
                Some(seen)
            } else {
                None
            };
            let reading = read(&self.store);
            let mut state = self.state();
            state.recording.sample(unix_seconds(SystemTime::now()), reading, seen);
            if unused.is_some_and(|unused| state.asked.elapsed() > unused) {
                return;
            }
        }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("History")
    }
}

/// Reads the series of the store.
fn read(store: &MetricStore) -> Reading {
    let mut reading = Reading::new();
    let mut add = |instrument: &'static Instrument, key: fn(&[LabelValue]) -> Option<Key>| {
        store.distributions(instrument, |labels, counts| {
            let Some(key) = key(labels) else { return };
            let failed = value(labels, Label::Status).map(|status| match &*status {
                "OK" => 0,
                _ => counts.iter().sum(),
            });
            reading.entry(key).or_default().add(counts, failed);
        });
    };
    add(&instruments::CALL_DURATION, |labels| Some(Key::Target { target: value(labels, Label::Target)? }));
    add(&instruments::ATTEMPT_DURATION, |labels| {
        let (target, cluster) = (value(labels, Label::Target)?, cluster(labels)?);
        Some(Key::Cluster { target, cluster })
    });
    add(&instruments::ENDPOINT_DURATION, |labels| {
        let (target, cluster) = (value(labels, Label::Target)?, cluster(labels)?);
        Some(Key::Endpoint { target, cluster, endpoint: value(labels, Label::Endpoint)? })
    });
    reading
}

fn value(labels: &[LabelValue], label: Label) -> Option<Arc<str>> {
    labels.iter().find(|(of, _)| *of == label).map(|(_, value)| Arc::clone(value))
}

/// The cluster, which attempts that reached none do not have.
fn cluster(labels: &[LabelValue]) -> Option<Arc<str>> {
    value(labels, Label::BackendService).filter(|cluster| !cluster.is_empty())
}

fn seen(channels: &[ChannelView]) -> Seen {
    let mut seen = Seen::default();
    for channel in channels {
        if let Some(root) = &channel.tree.root {
            failed(root, &channel.target.as_str().into(), None, &mut seen.failed);
        }
        let mark = |event: &proxyless::inspect::Event| {
            let kind = MarkKind::of(event)?;
            let (time, text) = (unix_seconds(event.time), event.description.clone());
            Some(HistoryMark { time, channel: channel.id, kind, text })
        };
        let marks = channel.events.iter().map(mark).collect();
        seen.channels.push(SeenChannel { id: channel.id, events_total: channel.events_total, marks });
    }
    seen
}

/// Adds the failed calls of the endpoints below a policy.
fn failed(node: &PolicyView, target: &Arc<str>, cluster: Option<&Arc<str>>, into: &mut BTreeMap<Key, u64>) {
    for endpoint in &node.endpoints {
        let address = endpoint.connected.or(endpoint.addresses.first().copied());
        let (Some(address), Some(cluster)) = (address, cluster) else { continue };
        let (target, cluster) = (Arc::clone(target), Arc::clone(cluster));
        let key = Key::Endpoint { target, cluster, endpoint: address.to_string().into() };
        *into.entry(key).or_default() += endpoint.calls.failed;
    }
    for child in &node.children {
        // Leaf clusters are below the aggregate that they belong to.
        let named = (child.node.policy == "cds_experimental" && !child.name.is_empty())
            .then(|| Arc::from(child.name.as_str()));
        failed(&child.node, target, named.as_ref().or(cluster), into);
    }
}

#[cfg(test)]
mod tests {
    use proxyless::telemetry::Recorder as _;

    use super::*;

    fn labels(labels: &[(Label, &str)]) -> Vec<LabelValue> {
        labels.iter().map(|&(label, value)| (label, value.into())).collect()
    }

    #[test]
    fn a_reading_sums_methods_and_localities() {
        let store = MetricStore::new();
        for (method, status, locality) in [("a", "OK", "x"), ("b", "OK", "y"), ("a", "UNAVAILABLE", "x")] {
            let labels = labels(&[
                (Label::Method, method),
                (Label::Target, "t"),
                (Label::Status, status),
                (Label::Locality, locality),
                (Label::BackendService, "c"),
            ]);
            store.series(&instruments::ATTEMPT_DURATION, &labels).record(0.001);
        }
        // An attempt that reached no cluster.
        let nowhere =
            labels(&[(Label::Target, "t"), (Label::Status, "UNAVAILABLE"), (Label::BackendService, "")]);
        store.series(&instruments::ATTEMPT_DURATION, &nowhere).record(0.001);
        let endpoint = labels(&[(Label::Target, "t"), (Label::Endpoint, "e"), (Label::BackendService, "c")]);
        store.series(&instruments::ENDPOINT_DURATION, &endpoint).record(0.001);
        let reading = read(&store);
        let summary: Vec<_> = reading.iter().map(|(key, of)| (key.clone(), of.calls(), of.failed)).collect();
        let (target, cluster) = (Arc::<str>::from("t"), Arc::<str>::from("c"));
        let expected = [
            (Key::Cluster { target: Arc::clone(&target), cluster: Arc::clone(&cluster) }, 3, Some(1)),
            (Key::Endpoint { target, cluster, endpoint: "e".into() }, 1, None),
        ];
        assert_eq!(summary, expected);
    }
}
