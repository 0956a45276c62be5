//! The metrics of the client (gRFC A78).

use std::sync::Mutex;

use proxyless_sans_io::metrics::{Instrument, LabelValue, Meter, Recorder, Series};

use super::data_errors::{FAIL, IGNORE, reported};
use super::planes::Planes;
use super::*;

/// The sum of each counter, by its name and labels.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<BTreeMap<String, f64>>>);

struct Sum(String, Sums);

impl Series for Sum {
    fn record(&self, value: f64) {
        *self.1.0.lock().unwrap().entry(self.0.clone()).or_default() += value;
    }
}

impl Recorder for Sums {
    fn is_enabled(&self, _: &'static Instrument) -> bool {
        true
    }

    fn series(&self, instrument: &'static Instrument, labels: &[LabelValue]) -> Arc<dyn Series> {
        Arc::new(Sum(text(instrument, labels), self.clone()))
    }
}

impl Sums {
    fn meter(&self, target: &str) -> Meter {
        Meter::new(target.into(), vec![Arc::new(self.clone())])
    }

    /// The sums since the last look.
    fn take(&self) -> Vec<String> {
        let sums = std::mem::take(&mut *self.0.lock().unwrap());
        sums.into_iter().map(|(name, sum)| format!("{name} {sum}")).collect()
    }
}

/// `connected x s`: the name without its prefix, then the values of the labels.
fn text(instrument: &'static Instrument, labels: &[LabelValue]) -> String {
    let name = instrument.name.trim_start_matches("grpc.xds_client.");
    let values: Vec<_> = labels.iter().map(|(_, value)| value.replace("envoy.config.", "")).collect();
    format!("{name} {}", values.join(" "))
}

fn gauges(core: &XdsCore, target: &str) -> Vec<String> {
    let mut gauges = Vec::new();
    core.gauges(&target.into(), &mut |instrument, labels, value| {
        gauges.push(format!("{} {value}", text(instrument, labels)));
    });
    gauges
}

/// Two watchers, of the targets `even` and `odd`, which watch the resources with such numbers, from 1.
fn started(config: XdsCoreConfig, watches: &[(ResourceType, &str)]) -> (Harness, Sums) {
    let (mut h, sums) = (Harness::new(config), Sums::default());
    h.watchers = 2;
    h.core.meter(WatcherId(0), &sums.meter("even"));
    h.core.meter(WatcherId(1), &sums.meter("odd"));
    for (i, (resource_type, name)) in watches.iter().enumerate() {
        h.watch(i as u64 + 1, *resource_type, name);
    }
    h.up();
    (h, sums)
}

#[test]
fn a78_updates_count_for_the_targets_that_watch_them_unchanged_ones_included() {
    let (mut h, sums) = started(config(), &[(CDS, "a"), (CDS, "b"), (CDS, "c")]);
    h.respond(CDS, "1", &[cluster("a", ""), cluster("b", ""), cluster("c", "")]);
    assert_eq!(
        sums.take(),
        [
            "resource_updates_valid even xds.test:1 cluster.v3.Cluster 1",
            "resource_updates_valid odd xds.test:1 cluster.v3.Cluster 2",
        ]
    );
    h.respond(CDS, "2", &[cluster("a", ""), bad_cluster("b"), cluster("c", "x")]);
    assert_eq!(
        sums.take(),
        [
            "resource_updates_invalid even xds.test:1 cluster.v3.Cluster 1",
            "resource_updates_valid odd xds.test:1 cluster.v3.Cluster 2",
        ]
    );
}

#[test]
fn a78_resources_that_nobody_watches_or_without_a_name_count_for_all() {
    let (mut h, sums) = started(config(), &[(CDS, "a"), (CDS, "b")]);
    h.respond(CDS, "1", &[cluster("other", ""), garbage(CDS)]);
    let of_both =
        |name: &str| ["even", "odd"].map(|of| format!("{name} {of} xds.test:1 cluster.v3.Cluster 1"));
    assert_eq!(
        sums.take(),
        [of_both("resource_updates_invalid"), of_both("resource_updates_valid")].concat()
    );
    // The target whose last watcher has left is not counted.
    h.input(Input::Leave { watcher: WatcherId(1) });
    h.respond(CDS, "2", &[garbage(CDS)]);
    assert_eq!(sums.take(), ["resource_updates_invalid even xds.test:1 cluster.v3.Cluster 1"]);
}

#[test]
fn a78_channels_of_one_target_count_once() {
    let (mut h, sums) = (Harness::new(config()), Sums::default());
    h.watchers = 2;
    for watcher in 0..2 {
        h.core.meter(WatcherId(watcher), &sums.meter("x"));
    }
    h.watch(1, CDS, "a");
    h.watch(2, CDS, "a");
    h.up();
    h.respond(CDS, "1", &[cluster("a", "")]);
    assert_eq!(sums.take(), ["resource_updates_valid x xds.test:1 cluster.v3.Cluster 1"]);
    assert_eq!(
        gauges(&h.core, "x"),
        ["connected x xds.test:1 1", "resources x #old acked cluster.v3.Cluster 1"]
    );
}

#[test]
fn a78_connected_is_0_from_a_failure_without_a_response_to_the_next_response() {
    let (mut h, sums) = started(config(), &[(CDS, "a")]);
    let connected = |h: &Harness| gauges(&h.core, "odd")[0].clone();
    assert_eq!(connected(&h), "connected odd xds.test:1 1");
    assert!(gauges(&h.core, "even").is_empty(), "it watches nothing");
    h.down();
    assert_eq!(connected(&h), "connected odd xds.test:1 0");
    assert_eq!(sums.take(), ["server_failure odd xds.test:1 1"]);
    h.advance(Duration::from_secs(2));
    h.down();
    assert!(sums.take().is_empty(), "it was unhealthy before");
    h.advance(Duration::from_secs(5));
    h.up();
    assert_eq!(connected(&h), "connected odd xds.test:1 0", "a stream is not a response");
    h.respond(CDS, "1", &[cluster("a", "")]);
    assert_eq!(connected(&h), "connected odd xds.test:1 1");
    sums.take();
    // A57: a stream that ends after a response is not a failure.
    h.down();
    assert_eq!(connected(&h), "connected odd xds.test:1 1");
    assert!(sums.take().is_empty());
}

#[test]
fn a71_a78_each_server_in_use_has_its_own_state() {
    let sums = Sums::default();
    let mut p = Planes::new(&[0, 1], &[]);
    p.core.meter(WATCHER, &sums.meter("x"));
    p.watch(1, EDS, "e");
    p.down(0);
    p.up(1);
    let connected = gauges(&p.core, "x");
    assert!(connected[0].starts_with("connected x ") && connected[0].ends_with(" 0"), "{connected:?}");
    assert!(connected[1].starts_with("connected x ") && connected[1].ends_with(" 1"), "{connected:?}");
    assert_eq!(sums.take().len(), 1);
}

#[test]
fn a78_a88_resources_are_counted_by_their_cache_state() {
    let states = |h: &Harness| -> Vec<String> {
        let gauges = gauges(&h.core, "odd").into_iter().filter(|gauge| gauge.starts_with("resources"));
        gauges.map(|gauge| gauge.split(' ').nth(3).unwrap().to_owned()).collect()
    };
    let (mut h, _) = started(config_with(IGNORE, Gates::default()), &[(CDS, "a")]);
    assert_eq!(states(&h), ["requested"]);
    h.respond(CDS, "1", &[bad_cluster("a")]);
    assert_eq!(states(&h), ["nacked"]);
    h.respond(CDS, "2", &[cluster("a", "")]);
    assert_eq!(states(&h), ["acked"]);
    h.respond(CDS, "3", &[bad_cluster("a")]);
    assert_eq!(states(&h), ["nacked_but_cached"]);
    h.respond(CDS, "4", &[cluster("a", "")]);
    h.respond(CDS, "5", &[]);
    assert_eq!(states(&h), ["does_not_exist_but_cached"]);

    let (mut h, _) = started(config(), &[(EDS, "e")]);
    h.advance(Duration::from_secs(16));
    assert_eq!(states(&h), ["does_not_exist"]);

    let slow = ServerFeatures { resource_timer_is_transient_error: true, ..ServerFeatures::default() };
    let (mut h, _) = started(config_with(slow, data_errors_gate()), &[(EDS, "e")]);
    h.advance(Duration::from_secs(31));
    assert_eq!(states(&h), ["timeout"]);

    let (mut h, _) = started(config_with(FAIL, data_errors_gate()), &[(EDS, "e")]);
    h.message(reported("e", 5));
    assert_eq!(states(&h), ["received_error"]);
    let (mut h, _) = started(config_with(ServerFeatures::default(), data_errors_gate()), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.message(reported("e", 5));
    assert_eq!(states(&h), ["received_error_but_cached"]);
}
