//! Load reports: sequences of events for the LRS state machine, and the metrics of backends.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use prost::Message as _;
use proxyless_sans_io::Time;
use proxyless_sans_io::values::BackendMetrics;
use proxyless_xds::StreamId;
use proxyless_xds::lrs::{Effect, Input as Event, LoadStore, LrsCore, LrsCoreConfig};
use proxyless_xds::orca::OrcaLoadReport;
use proxyless_xds::resource::{ListedMetrics, Locality, MetricSelection};

use crate::input::Input;

/// Clusters with a store each.
const CLUSTERS: [&str; 3] = ["a", "b", "c"];
/// Longest sequence of events.
const STEPS: usize = 300;

/// Stores, calls, streams that open and end, responses (modified and raw), and time.
///
/// The driver follows the contract, as with ADS. Properties: no panic; few effects of one event; there is one stream at
/// a time, with one request in transit and one read at a time; requests decode, and the first has only the node; no
/// report has an empty interval; the sums of issued, succeeded, failed and dropped calls do not exceed the truth; time
/// advances at every deadline.
pub fn lrs(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World {
        core: LrsCore::new(config()),
        now: Time::ZERO,
        stores: CLUSTERS.map(|name| Store {
            store: Arc::new(LoadStore::new(name.into(), None, MetricSelection::AllNamed)),
            registered: false,
            running: 0,
        }),
        stream: None,
        last_stream: StreamId::default(),
        counted: Sums::default(),
        reported: Sums::default(),
    };
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
}

/// The report that a backend sends in its trailers (gRFC A51, A64), after Base64.
///
/// Properties: no panic; a decoded report is counted, whatever its numbers are, and the next load report still decodes.
pub fn orca(data: &[u8]) {
    let Ok(report) = OrcaLoadReport::decode(data) else { return };
    let listed = ListedMetrics {
        cpu_utilization: true,
        mem_utilization: true,
        application_utilization: true,
        all_named: true,
        ..Default::default()
    };
    for selection in [MetricSelection::AllNamed, MetricSelection::Listed(Arc::new(listed))] {
        let mut core = LrsCore::new(config());
        let store = Arc::new(LoadStore::new("a".into(), None, selection));
        core.handle(Time::ZERO, Event::Register { store: Arc::clone(&store) });
        core.handle(Time::ZERO, Event::StreamUp { stream: StreamId(1) });
        core.handle(Time::ZERO, Event::SendDone { stream: StreamId(1) });
        let request = LoadStatsResponse { send_all_clusters: true, ..Default::default() };
        core.handle(
            Time::ZERO,
            Event::Message { stream: StreamId(1), bytes: request.encode_to_vec().into() },
        );
        let load = store.locality(&Arc::default());
        for _ in 0..2 {
            load.stripe(0).started();
            load.stripe(0).succeeded();
            load.record(&BackendMetrics {
                cpu_utilization: report.cpu_utilization,
                mem_utilization: report.mem_utilization,
                application_utilization: report.application_utilization,
                named_metrics: report.named_metrics.clone(),
                ..BackendMetrics::default()
            });
        }
        while core.poll_effect().is_some() {}
        core.handle(Time::ZERO + Duration::from_secs(5), Event::Tick);
        let Some(Effect::Send { bytes, .. }) = core.poll_effect() else { panic!("a report is due") };
        let request = LoadStatsRequest::decode(bytes).expect("a report decodes");
        let stats = &request.cluster_stats[0].upstream_locality_stats[0];
        assert_eq!((stats.total_issued_requests, stats.total_successful_requests), (2, 2));
        assert!(stats.load_metric_stats.len() <= report.named_metrics.len() + 3);
    }
}

#[derive(Debug, Default)]
struct Sums {
    issued: u64,
    succeeded: u64,
    failed: u64,
    dropped: u64,
}

struct Store {
    store: Arc<LoadStore>,
    registered: bool,
    running: u64,
}

struct Stream {
    id: StreamId,
    up: bool,
    reading: bool,
    requests: usize,
    /// The request in transit.
    sending: Option<LoadStatsRequest>,
}

struct World {
    core: LrsCore,
    now: Time,
    stores: [Store; 3],
    stream: Option<Stream>,
    last_stream: StreamId,
    counted: Sums,
    reported: Sums,
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0 | 1 => {
                let store = &mut self.stores[input.below(CLUSTERS.len())];
                let (event, registered) = if store.registered {
                    (Event::Unregister { store: Arc::clone(&store.store) }, false)
                } else {
                    (Event::Register { store: Arc::clone(&store.store) }, true)
                };
                store.registered = registered;
                self.handle(event);
            }
            2..=5 => self.call(input),
            6 | 7 => {
                let Some(stream) = self.stream.as_mut().filter(|stream| !stream.up) else { return };
                stream.up = true;
                let stream = stream.id;
                self.handle(Event::StreamUp { stream });
            }
            8 | 9 => self.send_done(),
            10 | 11 => {
                let bytes = response(input);
                self.message(bytes);
            }
            12 => self.message(input.block().to_vec()),
            13 => {
                let Some(stream) = self.stream.take() else { return };
                self.handle(Event::StreamDown { stream: stream.id, reason: "ended".into() });
            }
            14 => {
                self.now = self.core.next_deadline().unwrap_or(self.now);
                self.handle(Event::Tick);
            }
            _ => {
                self.now = self.now + Duration::from_millis(input.u16().into());
                self.handle(Event::Tick);
            }
        }
    }

    /// A call begins, ends or is dropped.
    fn call(&mut self, input: &mut Input<'_>) {
        let store = &mut self.stores[input.below(CLUSTERS.len())];
        if !store.registered {
            return;
        }
        let zone = ["x", "y"][input.below(2)].to_owned();
        let load = store.store.locality(&Arc::new(Locality { zone, ..Default::default() }));
        match input.below(6) {
            0..=2 => {
                load.stripe(0).started();
                store.running += 1;
                self.counted.issued += 1;
            }
            3 if store.running > 0 => {
                load.stripe(0).succeeded();
                store.running -= 1;
                self.counted.succeeded += 1;
            }
            4 if store.running > 0 => {
                load.stripe(0).failed();
                store.running -= 1;
                self.counted.failed += 1;
            }
            _ => {
                store.store.category(&"drop".into()).dropped();
                self.counted.dropped += 1;
            }
        }
    }

    fn send_done(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let Some(request) = stream.sending.take() else { return };
        let id = stream.id;
        for cluster in request.cluster_stats {
            self.reported.dropped += cluster.total_dropped_requests;
            for locality in cluster.upstream_locality_stats {
                self.reported.issued += locality.total_issued_requests;
                self.reported.succeeded += locality.total_successful_requests;
                self.reported.failed += locality.total_error_requests;
            }
        }
        let (reported, counted) = (&self.reported, &self.counted);
        assert!(
            reported.issued <= counted.issued
                && reported.succeeded <= counted.succeeded
                && reported.failed <= counted.failed
                && reported.dropped <= counted.dropped,
            "{reported:?} of {counted:?}"
        );
        self.handle(Event::SendDone { stream: id });
    }

    fn message(&mut self, bytes: Vec<u8>) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.reading) else { return };
        stream.reading = false;
        let stream = stream.id;
        self.handle(Event::Message { stream, bytes: bytes.into() });
    }

    fn handle(&mut self, event: Event) {
        self.core.handle(self.now, event);
        let mut left = 8;
        while let Some(effect) = self.core.poll_effect() {
            assert!(left > 0, "too many effects of one event");
            left -= 1;
            self.effect(effect);
        }
        let deadline = self.core.next_deadline();
        assert!(deadline.is_none_or(|at| at > self.now), "{deadline:?} is due at {:?}", self.now);
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::OpenStream { stream } => {
                assert!(self.stream.is_none(), "a second stream");
                assert!(stream > self.last_stream, "an attempt's number is used twice");
                self.last_stream = stream;
                self.stream =
                    Some(Stream { id: stream, up: false, reading: false, requests: 0, sending: None });
            }
            Effect::CloseStream { stream } => {
                let closed = self.stream.take().expect("closes a stream that is open");
                assert_eq!(closed.id, stream);
            }
            Effect::Disconnect => assert!(self.stream.is_none(), "disconnects under a stream"),
            Effect::Send { stream, bytes } => {
                let open = self.open(stream);
                open.requests += 1;
                let request = LoadStatsRequest::decode(bytes).expect("a request decodes");
                assert_eq!(request.node.is_some(), open.requests == 1, "the node is in the first request");
                assert_eq!(request.cluster_stats.is_empty(), open.requests == 1);
                for cluster in &request.cluster_stats {
                    let interval = cluster.load_report_interval.as_ref().expect("an interval");
                    assert!((interval.seconds, interval.nanos) > (0, 0), "{cluster:?}");
                }
                assert!(open.sending.replace(request).is_none(), "two requests at once");
            }
            Effect::ReadNext { stream } => {
                let open = self.open(stream);
                assert!(!std::mem::replace(&mut open.reading, true), "two reads at once");
            }
        }
    }

    fn open(&mut self, id: StreamId) -> &mut Stream {
        let stream = self.stream.as_mut().expect("a stream is open");
        assert!(stream.id == id && stream.up, "the stream can be used");
        stream
    }
}

/// A LoadStatsResponse for some clusters and any interval.
fn response(input: &mut Input<'_>) -> Vec<u8> {
    let which = input.byte();
    let clusters = CLUSTERS.iter().enumerate().filter(|(i, _)| which >> i & 1 != 0);
    let interval = envoy_types::pb::google::protobuf::Duration {
        seconds: i64::from(input.byte().cast_signed()) << (which >> 4),
        nanos: i32::from(input.u16()) << (which >> 4),
    };
    let response = LoadStatsResponse {
        clusters: clusters.map(|(_, name)| (*name).to_owned()).collect(),
        send_all_clusters: which & 8 != 0,
        load_reporting_interval: Some(interval),
        ..Default::default()
    };
    response.encode_to_vec()
}

fn config() -> LrsCoreConfig {
    let bootstrap = crate::ads::bootstrap();
    LrsCoreConfig::new(&bootstrap, bootstrap.server(), 1)
}
