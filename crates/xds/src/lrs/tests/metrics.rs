//! Metrics that backends report of themselves.

use proxyless_sans_io::values::BackendMetrics;

use super::*;
use crate::orca::OrcaLoadReport;
use crate::resource::ListedMetrics;

fn store_with(selection: MetricSelection) -> Arc<LoadStore> {
    Arc::new(LoadStore::new("c".into(), None, selection))
}

fn record(store: &LoadStore, utilization: f64, named: &[(&str, f64)]) {
    let named_metrics = named.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    store.locality(&locality("z")).record(&BackendMetrics {
        cpu_utilization: utilization,
        mem_utilization: utilization * 2.0,
        application_utilization: utilization * 4.0,
        named_metrics,
        ..BackendMetrics::default()
    });
}

/// Name, number of requests and total of each named metric in the next report.
fn named(stats: &wire::UpstreamLocalityStats) -> Vec<(&str, u64, f64)> {
    let named = stats.load_metric_stats.iter();
    named.map(|m| (&*m.metric_name, m.num_requests_finished_with_metric, m.total_metric_value)).collect()
}

#[test]
fn a64_named_metrics_are_added_up_by_name() {
    let store = store_with(MetricSelection::AllNamed);
    let mut harness = Harness::reporting(&[&store]);
    record(&store, 0.5, &[("key1", 1.0), ("key2", 2.0)]);
    record(&store, 0.5, &[("key2", 3.0), ("key3", 4.0)]);
    record(&store, 0.5, &[]);
    let stats = harness.next_stats();
    let stats = &stats[0].upstream_locality_stats[0];
    assert_eq!(named(stats), [("key1", 1, 1.0), ("key2", 2, 5.0), ("key3", 1, 4.0)]);
    assert_eq!((&stats.cpu_utilization, &stats.mem_utilization), (&None, &None));
    // Reported values are not reported again.
    record(&store, 0.5, &[("key1", 7.0)]);
    let stats = harness.next_stats();
    assert_eq!(named(&stats[0].upstream_locality_stats[0]), [("key1", 1, 7.0)]);
    assert!(harness.next_stats().is_empty());
}

#[test]
fn a64_metrics_of_an_unsent_report_are_kept() {
    let store = store_with(MetricSelection::AllNamed);
    let mut harness = Harness::reporting(&[&store]);
    record(&store, 0.5, &[("key", 1.0)]);
    harness.hold_sends = true;
    harness.advance(SECOND);
    harness.down();
    harness.hold_sends = false;
    record(&store, 0.5, &[("key", 2.0)]);
    harness.advance(SECOND * 2);
    harness.up();
    harness.message(load_request(None, SECOND));
    let stats = harness.next_stats();
    assert_eq!(named(&stats[0].upstream_locality_stats[0]), [("key", 2, 3.0)]);
}

#[test]
fn a85_only_listed_metrics_are_reported() {
    let listed = ListedMetrics {
        cpu_utilization: true,
        application_utilization: true,
        named: ["foo".to_owned()].into(),
        ..ListedMetrics::default()
    };
    let store = store_with(MetricSelection::Listed(Arc::new(listed)));
    assert!(store.locality(&locality("z")).wants_metrics());
    let mut harness = Harness::reporting(&[&store]);
    record(&store, 0.5, &[("foo", 1.0), ("bar", 2.0)]);
    record(&store, 0.25, &[]);
    let stats = harness.next_stats();
    let stats = &stats[0].upstream_locality_stats[0];
    assert_eq!(named(stats), [("named_metrics.foo", 1, 1.0)]);
    let cpu = stats.cpu_utilization.as_ref().unwrap();
    assert_eq!((cpu.num_requests_finished_with_metric, cpu.total_metric_value), (2, 0.75));
    assert_eq!(stats.application_utilization.as_ref().unwrap().total_metric_value, 3.0);
    assert_eq!(stats.mem_utilization, None);
}

#[test]
fn a85_all_named_metrics_can_be_listed() {
    let listed = ListedMetrics { all_named: true, ..ListedMetrics::default() };
    let store = store_with(MetricSelection::Listed(Arc::new(listed)));
    let mut harness = Harness::reporting(&[&store]);
    record(&store, 0.5, &[("a", 1.0), ("b", 2.0)]);
    let stats = harness.next_stats();
    let named = named(&stats[0].upstream_locality_stats[0]).into_iter().map(|(name, ..)| name);
    assert_eq!(named.collect::<Vec<_>>(), ["named_metrics.a", "named_metrics.b"]);
}

#[test]
fn a85_with_nothing_listed_no_report_of_a_backend_is_wanted() {
    let store = store_with(MetricSelection::Listed(Arc::default()));
    assert!(!store.locality(&locality("z")).wants_metrics());
}

#[test]
fn a64_backends_do_not_choose_how_much_is_remembered() {
    let store = store_with(MetricSelection::AllNamed);
    let mut harness = Harness::reporting(&[&store]);
    let long = "x".repeat(257);
    record(&store, 0.5, &[("known", 1.0), (&long, 1.0)]);
    // A name of its own for each call.
    (0..1000).for_each(|i| record(&store, 0.5, &[(&format!("call-{i}"), 1.0)]));
    record(&store, 0.5, &[("known", 2.0)]);
    let stats = harness.next_stats();
    let reported = named(&stats[0].upstream_locality_stats[0]);
    assert_eq!(reported.len(), 100);
    assert_eq!(reported.last(), Some(&("known", 2, 3.0)), "names that are known go on");
    // After a report there is place again.
    record(&store, 0.5, &[("call-1000", 1.0)]);
    let stats = harness.next_stats();
    assert_eq!(named(&stats[0].upstream_locality_stats[0]), [("call-1000", 1, 1.0)]);
}

#[test]
fn a64_reports_that_are_never_sent_do_not_add_up_names() {
    let store = store_with(MetricSelection::AllNamed);
    let mut harness = Harness::reporting(&[&store]);
    for round in 0..15 {
        (0..80).for_each(|i| record(&store, 0.5, &[(&format!("{round}-{i:02}"), 1.0)]));
        harness.hold_sends = true;
        harness.advance(SECOND);
        harness.down();
        harness.hold_sends = false;
        harness.advance(SECOND * 200);
        harness.up();
        harness.message(load_request(None, SECOND));
    }
    let stats = harness.next_stats();
    assert_eq!(named(&stats[0].upstream_locality_stats[0]).len(), 1000);
}

#[test]
fn a85_listed_names_are_reported_however_many_they_are() {
    let names: Vec<String> = (0..150).map(|i| format!("name-{i}")).collect();
    let listed = ListedMetrics { named: names.iter().cloned().collect(), ..ListedMetrics::default() };
    let store = store_with(MetricSelection::Listed(Arc::new(listed)));
    let mut harness = Harness::reporting(&[&store]);
    names.iter().for_each(|name| record(&store, 0.5, &[(name, 1.0), ("other", 1.0)]));
    let stats = harness.next_stats();
    assert_eq!(named(&stats[0].upstream_locality_stats[0]).len(), 150);
}

#[test]
fn orca_reports_have_the_fields_of_the_wire() {
    // cpu_utilization 0.5, named_metrics {"k": 1.0}, application_utilization 2.0, and the deprecated field 3.
    let mut bytes = vec![0x09];
    bytes.extend(0.5f64.to_le_bytes());
    bytes.extend([0x18, 7, 0x42, 12, 0x0a, 1, b'k', 0x11]);
    bytes.extend(1.0f64.to_le_bytes());
    bytes.push(0x49);
    bytes.extend(2.0f64.to_le_bytes());
    let report = OrcaLoadReport::decode(&bytes[..]).unwrap();
    let expected = OrcaLoadReport {
        cpu_utilization: 0.5,
        application_utilization: 2.0,
        named_metrics: [("k".to_owned(), 1.0)].into(),
        ..Default::default()
    };
    assert_eq!(report, expected);
}
