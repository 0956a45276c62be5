//! [`LrsCore`]: the stream's lifecycle, and the schedule of reports.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use prost::Message as _;
use proxyless_sans_io::{Backoff, BackoffConfig, Repeats, Rng, Time};

use super::LoadStore;
use super::api::{Effect, Input, LrsCoreConfig};
use super::cluster::Cluster;
use super::report::ClusterKey;
use super::stream::{LrsStream, Sending, Taken};
use crate::resource::has_more_reported_clusters;
use crate::targets;
use crate::{Limits, StreamId};

/// The time for which load is kept for a server after its last store has gone, or after the last report since then, not
/// counting the time in which a stream asked for reports. A server that is away for longer, or does not ask for reports,
/// never learns of it: otherwise it would be dialled forever.
const LAST_ATTEMPTS: Duration = Duration::from_secs(300);

/// Reports the load of registered stores to one management server (A27-57).
///
/// Call [`Self::handle`] for each input, then [`Self::poll_effect`] until it returns `None`.
#[derive(Debug)]
pub struct LrsCore {
    config: LrsCoreConfig,
    /// How many clusters a response may name.
    max_clusters: usize,
    pub(super) clusters: BTreeMap<ClusterKey, Cluster>,
    stream: Option<LrsStream>,
    last_stream_id: StreamId,
    retry_at: Option<Time>,
    /// The time since which no store gets new calls, moved on by the time in which streams asked for reports, and to
    /// each report that was sent.
    unused_since: Option<Time>,
    backoff: Backoff,
    rng: Rng,
    /// Lines that may repeat: the end of streams, and bad responses.
    ended: Repeats,
    ignored: Repeats,
    effects: VecDeque<Effect>,
}

impl LrsCore {
    /// Creates a core that does nothing until a store is registered (A27-47, A27-94).
    #[must_use]
    pub fn new(config: LrsCoreConfig) -> Self {
        Self {
            rng: Rng::new(config.seed),
            config,
            max_clusters: Limits::default().resources_per_response,
            clusters: BTreeMap::new(),
            stream: None,
            last_stream_id: StreamId::default(),
            retry_at: None,
            unused_since: None,
            backoff: Backoff::new(BackoffConfig::default()),
            ended: Repeats::default(),
            ignored: Repeats::default(),
            effects: VecDeque::new(),
        }
    }

    /// The same with other limits than the default ones.
    #[must_use]
    pub fn with_limits(mut self, limits: &Limits) -> Self {
        self.max_clusters = limits.resources_per_response;
        self
    }

    /// Handles an input. Inputs about earlier streams are ignored.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Register { store } => {
                let cluster = self.clusters.entry(key_of(&store)).or_insert_with(|| Cluster::new(now));
                cluster.register(store);
            }
            Input::Unregister { store } => {
                if let Some(cluster) = self.clusters.get_mut(&key_of(&store)) {
                    cluster.retire(&store);
                }
            }
            // A47-26: load that was reported to the old server, but not taken by it, is dropped.
            Input::Withdraw { store } => {
                let key = key_of(&store);
                if self.clusters.get_mut(&key).is_some_and(|cluster| cluster.withdraw(&store)) {
                    self.clusters.remove(&key);
                    if let Some(stream) = &mut self.stream {
                        stream.forget(&key);
                    }
                }
            }
            Input::StreamUp { stream } => {
                if let Some(stream) = self.current(stream).filter(|stream| !stream.up) {
                    stream.up = true;
                    stream.sending = Some(Sending::Node);
                    let id = stream.id;
                    let server = &self.config.server_uri;
                    tracing::debug!(target: targets::XDS_CLIENT, %server, stream = %id, "the LRS stream is up");
                    // A27-61: the node is in the first request of a stream, and only there.
                    let bytes = self.config.first_request.clone();
                    self.effects.push_back(Effect::Send { stream: id, bytes });
                }
            }
            Input::SendDone { stream } => {
                let sent = self.current(stream).and_then(|stream| stream.sending.take());
                if matches!(sent, Some(Sending::Report(_))) {
                    self.unused_since = None;
                }
            }
            Input::Message { stream, bytes } => self.message(now, stream, bytes),
            Input::StreamDown { stream, reason } => self.stream_down(now, stream, &reason),
            Input::Tick => {}
        }
        self.advance(now);
    }

    /// Returns the next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The time at which [`Input::Tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let report = self.stream.as_ref().and_then(LrsStream::deadline);
        [self.retry_at, report, self.gives_up_at()].into_iter().flatten().min()
    }

    fn current(&mut self, id: StreamId) -> Option<&mut LrsStream> {
        self.stream.as_mut().filter(|stream| stream.id == id)
    }

    fn message(&mut self, now: Time, stream: StreamId, bytes: Bytes) {
        let (server, limit) = (Arc::clone(&self.config.server_uri), self.max_clusters);
        let Some(stream) = self.current(stream).filter(|stream| stream.up) else { return };
        stream.reading = false;
        // A name of two bytes takes ten times as much when decoded.
        if has_more_reported_clusters(&bytes, limit) {
            if let Some(repeated) = self.ignored.note("too many clusters") {
                tracing::warn!(
                    target: targets::XDS_CLIENT, %server, limit, repeated,
                    "an LRS response names more clusters than the limit; it is ignored"
                );
            }
            return;
        }
        match LoadStatsResponse::decode(bytes) {
            Ok(response) => {
                tracing::debug!(
                    target: targets::XDS_CLIENT, %server, clusters = response.clusters.len(),
                    all = response.send_all_clusters, interval = ?response.load_reporting_interval, "LRS response"
                );
                stream.on_request(now, response.into());
                self.backoff.reset();
            }
            Err(error) => {
                if let Some(repeated) = self.ignored.note(&error.to_string()) {
                    tracing::warn!(
                        target: targets::XDS_CLIENT, %server, %error, repeated,
                        "cannot decode an LRS response; it is ignored"
                    );
                }
            }
        }
    }

    fn stream_down(&mut self, now: Time, stream: StreamId, reason: &str) {
        let Some(ended) = self.stream.take_if(|current| current.id == stream) else { return };
        if let Some(repeated) = self.ended.note(reason) {
            let server = &self.config.server_uri;
            tracing::info!(target: targets::XDS_CLIENT, %server, reason, repeated, "the LRS stream ended");
        }
        // A stream that ends long after the last store has gone must not take the load along.
        if let (Some(unused), Some(asked)) = (&mut self.unused_since, ended.asked_since) {
            *unused = *unused + now.since(asked.max(*unused));
        }
        // A report that HTTP/2 has not taken is sent on the next stream, together with the load counted until then.
        if let Some(Sending::Report(taken)) = ended.sending {
            for Taken { key, load, since } in taken {
                self.clusters.entry(key).or_insert_with(|| Cluster::new(now)).restore(load, since);
            }
        }
        // Unlike an ADS stream, a new one always waits, so that a server that answers and closes each stream is not
        // flooded.
        self.retry_at = Some(now + self.backoff.next_delay(&mut self.rng));
    }

    fn advance(&mut self, now: Time) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.stream.as_ref().and_then(LrsStream::deadline)) {
            self.report(now);
        }
        self.clusters.values_mut().for_each(Cluster::sweep);
        self.clusters.retain(|_, cluster| !cluster.is_done());
        self.give_up(now);
        if self.clusters.is_empty() {
            self.close();
        } else if self.stream.is_none() && (self.retry_at.is_none() || is_due(self.retry_at)) {
            self.open_stream();
        }
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.up && !stream.reading) {
            stream.reading = true;
            self.effects.push_back(Effect::ReadNext { stream: stream.id });
        }
    }

    /// Drops the remaining load if nothing uses the server any more and it could not be reported for long.
    fn give_up(&mut self, now: Time) {
        if self.clusters.is_empty() || self.clusters.values().any(Cluster::is_used) {
            self.unused_since = None;
            return;
        }
        self.unused_since.get_or_insert(now);
        if self.gives_up_at().is_some_and(|at| at <= now) {
            let server = &self.config.server_uri;
            tracing::info!(target: targets::XDS_CLIENT, %server, "the last load report could not be sent");
            self.clusters.clear();
            self.unused_since = None;
        }
    }

    fn gives_up_at(&self) -> Option<Time> {
        let reports = self.stream.as_ref().is_some_and(|stream| stream.requested.is_some());
        self.unused_since.filter(|_| !reports).map(|since| since + LAST_ATTEMPTS)
    }

    fn report(&mut self, now: Time) {
        let Some(stream) = &mut self.stream else { return };
        let Some(requested) = &stream.requested else { return };
        stream.next_report = Some(now + requested.interval);
        let mut taken = Vec::new();
        for (key, cluster) in &mut self.clusters {
            if !requested.includes(&key.cluster) {
                // A later request must not be answered with load of the past.
                cluster.discard(now);
                continue;
            }
            // Load over an empty interval has no rate: it goes into the next report.
            if cluster.since == now {
                continue;
            }
            let (load, since) = cluster.take(now);
            if !load.is_zero() {
                taken.push(Taken { key: key.clone(), load, since });
            }
        }
        stream.reported = !taken.is_empty();
        if taken.is_empty() {
            return;
        }
        let stats = taken.iter().map(|taken| taken.load.message(&taken.key, now.since(taken.since)));
        let request = LoadStatsRequest { node: None, cluster_stats: stats.collect() };
        let server = &self.config.server_uri;
        tracing::debug!(target: targets::XDS_CLIENT, %server, clusters = taken.len(), "load report");
        stream.sending = Some(Sending::Report(taken));
        let bytes = request.encode_to_vec().into();
        self.effects.push_back(Effect::Send { stream: stream.id, bytes });
    }

    fn open_stream(&mut self) {
        self.retry_at = None;
        self.last_stream_id = self.last_stream_id.next();
        self.stream = Some(LrsStream::new(self.last_stream_id));
        self.effects.push_back(Effect::OpenStream { stream: self.last_stream_id });
    }

    /// No load is to be reported (A27-47): closes the stream, unless its last report may still be in flight.
    fn close(&mut self) {
        let was_waiting = self.retry_at.take().is_some();
        let stream = self.stream.take_if(|stream| stream.is_quiet());
        if let Some(stream) = &stream {
            let server = &self.config.server_uri;
            tracing::debug!(target: targets::XDS_CLIENT, %server, stream = %stream.id, "closing the LRS stream");
            self.backoff.reset();
            self.effects.push_back(Effect::CloseStream { stream: stream.id });
        }
        if was_waiting || stream.is_some() {
            self.effects.push_back(Effect::Disconnect);
        }
    }
}

fn key_of(store: &LoadStore) -> ClusterKey {
    ClusterKey { cluster: Arc::clone(store.cluster()), eds_service_name: store.eds_service_name().cloned() }
}
