//! Tests of the core: a harness that plays driver and server, and calls that count themselves.

mod core;
mod law;
mod metrics;
mod stores;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::config::endpoint::v3 as wire;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf::Duration as WireDuration;
use prost::Message as _;
use proxyless_sans_io::Time;

use super::*;
use crate::StreamId;
use crate::bootstrap::Bootstrap;
use crate::resource::{Locality, MetricSelection};

/// The calls of one stripe.
impl LocalityLoad {
    fn started(&self) {
        self.stripe(0).started();
    }

    fn succeeded(&self) {
        self.stripe(0).succeeded();
    }

    fn failed(&self) {
        self.stripe(0).failed();
    }

    fn withdrawn(&self) {
        self.stripe(0).withdrawn();
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn config() -> LrsCoreConfig {
    let bootstrap = Bootstrap::builder().server("xds.test:1").node_id("node-1").build();
    let bootstrap = bootstrap.unwrap();
    LrsCoreConfig::new(&bootstrap, bootstrap.server(), 1)
}

fn store(cluster: &str) -> Arc<LoadStore> {
    Arc::new(LoadStore::new(cluster.into(), None, MetricSelection::default()))
}

fn locality(zone: &str) -> Arc<Locality> {
    Arc::new(Locality { zone: zone.into(), ..Locality::default() })
}

/// What a server says that it wants: all clusters, unless some are named.
fn load_request(clusters: Option<&[&str]>, interval: Duration) -> Bytes {
    let response = LoadStatsResponse {
        clusters: clusters.unwrap_or_default().iter().map(ToString::to_string).collect(),
        send_all_clusters: clusters.is_none(),
        load_reporting_interval: Some(WireDuration {
            seconds: interval.as_secs() as i64,
            nanos: interval.subsec_nanos() as i32,
        }),
        report_endpoint_granularity: false,
    };
    response.encode_to_vec().into()
}

/// Drives a core by hand. Requests count as sent at once unless held.
struct Harness {
    core: LrsCore,
    now: Time,
    stream: StreamId,
    opened: usize,
    closed: usize,
    disconnects: usize,
    reads: usize,
    hold_sends: bool,
    /// Requests that were sent and not yet pulled.
    unsent: VecDeque<(StreamId, LoadStatsRequest)>,
    requests: Vec<LoadStatsRequest>,
}

impl Harness {
    fn new() -> Self {
        Self {
            core: LrsCore::new(config()),
            now: Time::ZERO,
            stream: StreamId::default(),
            opened: 0,
            closed: 0,
            disconnects: 0,
            reads: 0,
            hold_sends: false,
            unsent: VecDeque::new(),
            requests: Vec::new(),
        }
    }

    /// A core with these stores on a stream that is up, whose server wants all clusters each second. The first request
    /// is not kept.
    fn reporting(stores: &[&Arc<LoadStore>]) -> Self {
        let mut harness = Self::new();
        stores.iter().for_each(|store| harness.register(store));
        harness.up();
        harness.message(load_request(None, SECOND));
        harness.requests.clear();
        harness
    }

    fn input(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.core.handle(self.now, input);
            while let Some(effect) = self.core.poll_effect() {
                match effect {
                    Effect::OpenStream { stream } => {
                        assert!(stream > self.stream);
                        (self.stream, self.opened) = (stream, self.opened + 1);
                    }
                    Effect::CloseStream { stream } => {
                        assert_eq!(stream, self.stream);
                        self.closed += 1;
                        self.unsent.clear();
                    }
                    Effect::Disconnect => self.disconnects += 1,
                    Effect::Send { stream, bytes } => {
                        assert!(self.unsent.is_empty(), "one request at a time");
                        self.unsent.push_back((stream, LoadStatsRequest::decode(bytes).unwrap()));
                        if !self.hold_sends {
                            inputs.extend(self.pull());
                        }
                    }
                    Effect::ReadNext { .. } => self.reads += 1,
                }
            }
        }
    }

    /// HTTP/2 pulls the request that waits.
    fn pull(&mut self) -> Option<Input> {
        let (stream, request) = self.unsent.pop_front()?;
        self.requests.push(request);
        Some(Input::SendDone { stream })
    }

    fn release_sends(&mut self) {
        self.hold_sends = false;
        if let Some(input) = self.pull() {
            self.input(input);
        }
    }

    fn register(&mut self, store: &Arc<LoadStore>) {
        self.input(Input::Register { store: Arc::clone(store) });
    }

    fn unregister(&mut self, store: &Arc<LoadStore>) {
        self.input(Input::Unregister { store: Arc::clone(store) });
    }

    fn up(&mut self) {
        self.input(Input::StreamUp { stream: self.stream });
    }

    fn down(&mut self) {
        self.unsent.clear();
        self.input(Input::StreamDown { stream: self.stream, reason: "UNAVAILABLE".into() });
    }

    fn message(&mut self, bytes: Bytes) {
        self.input(Input::Message { stream: self.stream, bytes });
    }

    /// Lets time pass, with a tick at each deadline on the way.
    fn advance(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.core.next_deadline().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.input(Input::Tick);
        }
        self.now = end;
    }

    /// The next report's statistics, a second from now.
    fn next_stats(&mut self) -> Vec<wire::ClusterStats> {
        let before = self.requests.len();
        self.advance(SECOND);
        assert!(self.requests.len() <= before + 1, "more than one report in a second");
        self.requests.get(before).map(|request| request.cluster_stats.clone()).unwrap_or_default()
    }

    /// Issued, succeeded, failed, in progress of each cluster in the next report.
    fn next_counts(&mut self) -> BTreeMap<String, [u64; 4]> {
        self.next_stats().into_iter().map(|stats| (stats.cluster_name.clone(), counts(&stats))).collect()
    }

    /// The same of the only cluster in the next report.
    #[track_caller]
    fn next_only(&mut self) -> [u64; 4] {
        let all = self.next_counts();
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_values().next().unwrap()
    }
}

fn counts(stats: &wire::ClusterStats) -> [u64; 4] {
    let mut sum = [0; 4];
    for of in &stats.upstream_locality_stats {
        sum[0] += of.total_issued_requests;
        sum[1] += of.total_successful_requests;
        sum[2] += of.total_error_requests;
        sum[3] += of.total_requests_in_progress;
    }
    sum
}
