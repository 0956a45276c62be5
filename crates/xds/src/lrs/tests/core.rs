//! The life of the stream, and the contents and times of reports.

use super::*;

#[test]
fn a27_47_a27_94_no_stream_without_a_store() {
    let mut harness = Harness::new();
    harness.advance(SECOND * 100);
    assert_eq!((harness.opened, harness.core.next_deadline()), (0, None));
}

#[test]
fn x_16_the_stream_begins_with_the_node_and_its_feature() {
    let mut harness = Harness::new();
    harness.register(&store("c"));
    assert_eq!(harness.opened, 1);
    assert!(harness.requests.is_empty(), "nothing before the stream is up");
    harness.up();
    let [first] = &harness.requests[..] else { panic!("{:?}", harness.requests) };
    let node = first.node.as_ref().unwrap();
    assert_eq!(node.id, "node-1");
    assert!(node.client_features.iter().any(|feature| feature == "envoy.lrs.supports_send_all_clusters"));
    assert!(first.cluster_stats.is_empty());
    assert_eq!(harness.reads, 1);
    // Only here: the node of ADS does not say so.
    let bootstrap = Bootstrap::builder().server("xds.test:1").build().unwrap();
    assert!(!bootstrap.node().client_features.iter().any(|feature| feature.contains("lrs")));
}

#[test]
fn a27_57_nothing_is_reported_before_the_server_asks() {
    let (store, mut harness) = (store("c"), Harness::new());
    harness.register(&store);
    harness.up();
    harness.requests.clear();
    store.locality(&locality("z")).started();
    harness.advance(SECOND * 100);
    assert!(harness.requests.is_empty());
    harness.message(load_request(None, SECOND));
    assert_eq!(harness.next_only(), [1, 0, 0, 1]);
}

#[test]
fn a27_57_reports_have_the_new_calls_by_locality() {
    let store = Arc::new(LoadStore::new("c".into(), Some("e".into()), MetricSelection::default()));
    let (one, two) = (store.locality(&locality("one")), store.locality(&locality("two")));
    let mut harness = Harness::reporting(&[&store]);
    (0..3).for_each(|_| one.started());
    one.succeeded();
    one.failed();
    two.started();
    two.succeeded();
    let stats = harness.next_stats();
    let [stats] = &stats[..] else { panic!("{stats:?}") };
    assert_eq!((&*stats.cluster_name, &*stats.cluster_service_name), ("c", "e"));
    let [first, second] = &stats.upstream_locality_stats[..] else { panic!("{stats:?}") };
    assert_eq!(first.locality.as_ref().unwrap().zone, "one");
    assert_eq!((first.total_issued_requests, first.total_successful_requests), (3, 1));
    assert_eq!((first.total_error_requests, first.total_requests_in_progress), (1, 1));
    assert_eq!((second.total_issued_requests, second.total_successful_requests), (1, 1));
    assert!(harness.requests.iter().all(|request| request.node.is_none()));
    // The next report has only the calls since then, and those in flight.
    one.succeeded();
    assert_eq!(harness.next_only(), [0, 1, 0, 0]);
}

#[test]
fn a27_58_single_endpoints_are_not_reported_even_if_the_server_asks() {
    let store = store("c");
    let load = store.locality(&locality("z"));
    let mut harness = Harness::reporting(&[&store]);
    let request = LoadStatsResponse::decode(load_request(None, SECOND)).unwrap();
    let request = LoadStatsResponse { report_endpoint_granularity: true, ..request };
    harness.message(request.encode_to_vec().into());
    load.started();
    load.succeeded();
    let stats = harness.next_stats();
    let [locality] = &stats[0].upstream_locality_stats[..] else { panic!("{stats:?}") };
    assert_eq!((locality.total_issued_requests, locality.total_successful_requests), (1, 1));
    assert_eq!(locality.upstream_endpoint_stats, []);
}

#[test]
fn a37_53_without_an_eds_service_name_none_is_reported() {
    let store = store("c");
    let load = store.locality(&Arc::default());
    let mut harness = Harness::reporting(&[&store]);
    load.started();
    let stats = harness.next_stats();
    assert_eq!(stats[0].cluster_service_name, "");
    // A37-32: the place of a DNS leaf is a locality without names.
    assert_eq!(stats[0].upstream_locality_stats[0].locality, Some(Default::default()));
}

#[test]
fn zero_reports_are_not_sent_and_calls_in_progress_are_no_zero() {
    let store = store("c");
    let load = store.locality(&locality("z"));
    let mut harness = Harness::reporting(&[&store]);
    harness.advance(SECOND * 10);
    assert!(harness.requests.is_empty());
    load.started();
    assert_eq!(harness.next_only(), [1, 0, 0, 1]);
    assert_eq!(harness.next_only(), [0, 0, 0, 1]);
    load.succeeded();
    assert_eq!(harness.next_only(), [0, 1, 0, 0]);
    assert!(harness.next_stats().is_empty());
}

#[test]
fn x_13_drops_are_reported_by_category_and_in_total() {
    let store = store("c");
    let throttle = store.category(&"throttle".into());
    let mut harness = Harness::reporting(&[&store]);
    throttle.dropped();
    throttle.dropped();
    store.uncategorized().dropped();
    let stats = harness.next_stats();
    assert_eq!(stats[0].total_dropped_requests, 3);
    let [dropped] = &stats[0].dropped_requests[..] else { panic!("{stats:?}") };
    assert_eq!((&*dropped.category, dropped.dropped_count), ("throttle", 2));
    store.uncategorized().dropped();
    let stats = harness.next_stats();
    assert_eq!(stats[0].total_dropped_requests, 1);
    assert!(stats[0].dropped_requests.is_empty());
}

#[test]
fn a27_57_only_clusters_that_the_server_names_are_reported() {
    let (one, two) = (store("one"), store("two"));
    let (load_one, load_two) = (one.locality(&locality("z")), two.locality(&locality("z")));
    let mut harness = Harness::reporting(&[&one, &two]);
    harness.message(load_request(Some(&["two"]), SECOND));
    load_one.started();
    load_one.succeeded();
    load_one.started();
    load_two.started();
    assert_eq!(harness.next_counts(), [("two".into(), [1, 0, 0, 1])].into());
    // From now on both: of the past of the other only the call that is still in progress counts.
    harness.message(load_request(None, SECOND));
    load_one.succeeded();
    let both = harness.next_counts();
    assert_eq!(both, [("one".into(), [1, 1, 0, 0]), ("two".into(), [0, 0, 0, 1])].into());
    // And none at all.
    harness.message(load_request(Some(&[]), SECOND));
    load_one.started();
    assert!(harness.next_stats().is_empty());
}

#[test]
fn a_new_interval_begins_when_it_comes() {
    let store = store("c");
    let load = store.locality(&locality("z"));
    let mut harness = Harness::new();
    harness.register(&store);
    harness.up();
    harness.requests.clear();
    load.started();
    harness.message(load_request(None, SECOND * 60));
    harness.advance(SECOND * 59);
    assert!(harness.requests.is_empty());
    harness.message(load_request(None, SECOND * 2));
    harness.advance(SECOND);
    assert!(harness.requests.is_empty());
    harness.advance(SECOND);
    assert_eq!(harness.requests.len(), 1);
    // The same again changes nothing: the report is not put off.
    harness.advance(SECOND);
    harness.message(load_request(None, SECOND * 2));
    harness.advance(SECOND);
    assert_eq!(harness.requests.len(), 2);
}

#[test]
fn intervals_have_a_floor_and_nonsense_is_short() {
    for interval in [Some((0, 1)), Some((-5, 0)), Some((0, -1)), None] {
        let store = store("c");
        let load = store.locality(&locality("z"));
        let mut harness = Harness::reporting(&[&store]);
        load.started();
        let response = LoadStatsResponse {
            send_all_clusters: true,
            load_reporting_interval: interval.map(|(seconds, nanos)| WireDuration { seconds, nanos }),
            ..Default::default()
        };
        harness.message(response.encode_to_vec().into());
        harness.advance(SECOND * 10);
        assert_eq!(harness.requests.len(), 10, "{interval:?}");
    }
}

#[test]
fn reports_say_how_long_they_cover() {
    let store = store("c");
    let load = store.locality(&locality("z"));
    let mut harness = Harness::new();
    harness.now = Time::ZERO + SECOND * 100;
    harness.register(&store);
    load.started();
    harness.advance(SECOND * 3);
    harness.up();
    harness.message(load_request(None, SECOND * 2));
    harness.hold_sends = true;
    let covered = |harness: &Harness| {
        let stats = &harness.requests.last().unwrap().cluster_stats[0];
        stats.load_report_interval.as_ref().unwrap().seconds
    };
    harness.advance(SECOND * 2);
    harness.release_sends();
    assert_eq!(covered(&harness), 5, "from the registration");
    harness.advance(SECOND * 2);
    assert_eq!(covered(&harness), 2);
    // A request that HTTP/2 does not pull holds up the next, which then covers all of that time.
    harness.hold_sends = true;
    harness.advance(SECOND * 7);
    let before = harness.requests.len();
    harness.release_sends();
    assert_eq!(harness.requests.len(), before + 2);
    assert_eq!(covered(&harness), 5);
}

#[test]
fn nothing_is_lost_when_a_stream_breaks() {
    let store = store("c");
    let load = store.locality(&locality("z"));
    let mut harness = Harness::reporting(&[&store]);
    load.started();
    assert_eq!(harness.next_only(), [1, 0, 0, 1]);
    // A report that was never pulled counts again, one that was does not.
    load.succeeded();
    load.started();
    store.uncategorized().dropped();
    harness.hold_sends = true;
    harness.advance(SECOND);
    assert_eq!(harness.unsent.len(), 1);
    harness.down();
    harness.hold_sends = false;
    load.started();
    harness.advance(SECOND * 2);
    assert_eq!(harness.opened, 2);
    harness.up();
    let first = harness.requests.last().unwrap();
    assert!(first.node.is_some() && first.cluster_stats.is_empty(), "{first:?}");
    harness.message(load_request(None, SECOND));
    let stats = harness.next_stats();
    assert_eq!(counts(&stats[0]), [2, 1, 0, 2]);
    assert_eq!(stats[0].total_dropped_requests, 1);
    assert_eq!(
        stats[0].load_report_interval.as_ref().unwrap().seconds,
        4,
        "since the last report that went out"
    );
}

#[test]
fn what_the_last_stream_was_asked_for_means_nothing_to_the_next() {
    let store = store("c");
    let load = store.locality(&locality("z"));
    let mut harness = Harness::reporting(&[&store]);
    load.started();
    harness.down();
    harness.advance(SECOND * 2);
    harness.up();
    let before = harness.requests.len();
    harness.advance(SECOND * 10);
    assert_eq!(harness.requests.len(), before);
}

#[test]
fn a57_streams_come_back_with_backoff_that_a_response_resets() {
    let store = store("c");
    let mut harness = Harness::new();
    harness.register(&store);
    let mut waited = Vec::new();
    for _ in 0..6 {
        harness.down();
        let at = harness.core.next_deadline().unwrap();
        waited.push(at.since(harness.now).as_secs_f64());
        harness.now = at;
        harness.input(Input::Tick);
    }
    let expected = [1.0, 1.6, 2.56, 4.096, 6.5536, 10.48576];
    assert!(waited.iter().zip(expected).all(|(w, e)| (e * 0.8..=e * 1.2).contains(w)), "{waited:?}");
    harness.up();
    harness.message(load_request(None, SECOND));
    harness.down();
    let wait = harness.core.next_deadline().unwrap().since(harness.now).as_secs_f64();
    assert!((0.8..=1.2).contains(&wait), "{wait}");
}

#[test]
fn garbage_is_passed_over() {
    let store = store("c");
    let load = store.locality(&locality("z"));
    let mut harness = Harness::reporting(&[&store]);
    let reads = harness.reads;
    harness.message(Bytes::from_static(b"\xff\xff"));
    assert_eq!(harness.reads, reads + 1, "reading goes on");
    load.started();
    assert_eq!(harness.next_only(), [1, 0, 0, 1], "and the server's request is unchanged");
}

#[test]
fn inputs_of_past_streams_are_ignored() {
    let store = store("c");
    let mut harness = Harness::reporting(&[&store]);
    let old = harness.stream;
    harness.down();
    harness.advance(SECOND * 2);
    assert_ne!(harness.stream, old);
    for input in [
        Input::StreamUp { stream: old },
        Input::SendDone { stream: old },
        Input::Message { stream: old, bytes: load_request(None, SECOND) },
        Input::StreamDown { stream: old, reason: "late".into() },
    ] {
        harness.input(input);
    }
    assert!(harness.requests.is_empty());
    assert_eq!((harness.opened, harness.core.next_deadline()), (2, None));
}

#[test]
fn response_that_names_too_many_clusters_is_ignored() {
    let (store, mut harness) = (store("a"), Harness::new());
    let limits = crate::Limits { resources_per_response: 2, ..Default::default() };
    harness.core = LrsCore::new(config()).with_limits(&limits);
    harness.register(&store);
    harness.up();
    harness.message(load_request(None, SECOND));
    let load = store.locality(&locality("z"));
    let reads = harness.reads;
    // It would end the reports of "a".
    harness.message(load_request(Some(&["x", "y", "z"]), SECOND));
    assert_eq!(harness.reads, reads + 1, "the next message is read");
    load.started();
    assert_eq!(harness.next_only(), [1, 0, 0, 1]);
    harness.message(load_request(Some(&["x", "y"]), SECOND));
    load.started();
    assert!(harness.next_counts().is_empty(), "two are not too many");
}
