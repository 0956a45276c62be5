//! Stores that come, go and come back.

use super::*;
use crate::lrs::locality::LocalityLoad;

fn load_of(store: &LoadStore) -> Arc<LocalityLoad> {
    store.locality(&locality("z"))
}

#[test]
fn a27_47_the_stream_ends_with_the_last_store() {
    let (one, two) = (store("one"), store("two"));
    let mut harness = Harness::reporting(&[&one, &two]);
    harness.unregister(&one);
    assert_eq!(harness.closed, 0);
    // The test's own share counts as a user of the store.
    harness.input(Input::Unregister { store: two });
    drop(one);
    harness.advance(SECOND);
    assert_eq!((harness.closed, harness.core.next_deadline()), (1, None));
    assert!(harness.requests.is_empty());
}

#[test]
fn a_store_that_goes_while_its_stream_is_down_ends_the_attempts() {
    let store = store("c");
    let mut harness = Harness::reporting(&[&store]);
    harness.down();
    assert!(harness.core.next_deadline().is_some());
    harness.input(Input::Unregister { store });
    assert_eq!((harness.opened, harness.core.next_deadline()), (1, None));
}

/// The next server's interval starts at the move, so that what was counted before does not belong to it. Calls in
/// flight are reported as issued, so that their ends match.
#[test]
fn a47_26_a_store_that_moves_to_another_server_starts_over() {
    let store = store("c");
    let load = load_of(&store);
    let mut first = Harness::reporting(&[&store]);
    load.started();
    load.succeeded();
    load.started();
    first.input(Input::Withdraw { store: Arc::clone(&store) });
    let mut second = Harness::reporting(&[&store]);
    assert_eq!(second.next_only(), [1, 0, 0, 1]);
    load.succeeded();
    assert_eq!(second.next_only(), [0, 1, 0, 0]);
}

#[test]
fn a47_26_a_report_in_transit_is_not_sent_again_after_its_store_has_moved() {
    let store = store("c");
    let mut harness = Harness::reporting(&[&store]);
    load_of(&store).started();
    harness.hold_sends = true;
    harness.advance(SECOND);
    assert_eq!(harness.unsent.len(), 1);
    harness.input(Input::Withdraw { store });
    harness.down();
    assert_eq!(
        (harness.core.next_deadline(), harness.opened),
        (None, 1),
        "the old server is not dialled again"
    );
}

#[test]
fn a_server_that_stays_away_is_not_dialled_forever_for_the_last_report() {
    let store = store("c");
    let mut harness = Harness::reporting(&[&store]);
    let load = load_of(&store);
    load.started();
    harness.unregister(&store);
    harness.down();
    for _ in 0..100 {
        harness.advance(SECOND * 10);
        if harness.core.next_deadline().is_some() {
            harness.down();
        }
    }
    assert!(harness.opened > 3, "it was given {} chances", harness.opened);
    assert_eq!((harness.core.next_deadline(), harness.disconnects), (None, 1));
    // The server is back, and is used again.
    harness.register(&store);
    harness.up();
    harness.message(load_request(None, SECOND));
    assert_eq!(harness.next_only(), [1, 0, 0, 1]);
}

#[test]
fn a_server_that_never_asks_for_reports_does_not_keep_an_unused_stream() {
    let (store, mut harness) = (store("c"), Harness::new());
    harness.register(&store);
    harness.up();
    load_of(&store).started();
    harness.unregister(&store);
    harness.advance(SECOND * 299);
    assert_eq!(harness.closed, 0);
    harness.advance(SECOND);
    assert_eq!((harness.closed, harness.disconnects, harness.core.next_deadline()), (1, 1, None));
}

/// Its last report was to be sent after an hour: a server that is back within the time allowed for it gets it.
#[test]
fn the_time_for_the_last_report_counts_only_while_no_stream_reports() {
    let store = store("c");
    let mut harness = Harness::new();
    harness.register(&store);
    harness.up();
    harness.message(load_request(None, SECOND * 3600));
    load_of(&store).started();
    load_of(&store).succeeded();
    harness.input(Input::Unregister { store });
    for _ in 0..2 {
        harness.advance(SECOND * 1000);
        harness.down();
        harness.advance(SECOND * 100);
        harness.up();
        harness.message(load_request(None, SECOND * 3600));
    }
    assert_eq!(harness.disconnects, 0, "it was away for 200 seconds");
    harness.message(load_request(None, SECOND));
    assert_eq!(harness.next_only(), [1, 1, 0, 0]);
}

/// The call of a store that has gone lasts for long, and streams are cut now and then.
#[test]
fn each_report_that_is_sent_gives_the_next_its_full_time() {
    let store = store("c");
    let load = load_of(&store);
    let mut harness = Harness::reporting(&[&store]);
    load.started();
    harness.input(Input::Unregister { store });
    for _ in 0..5 {
        harness.advance(SECOND * 2);
        harness.down();
        harness.advance(SECOND * 200);
        harness.up();
        harness.message(load_request(None, SECOND));
    }
    load.failed();
    drop(load);
    assert_eq!(harness.next_only(), [0, 0, 1, 0]);
}

#[test]
fn a_server_that_asks_and_closes_each_stream_is_not_dialled_forever() {
    let store = store("c");
    let mut harness = Harness::reporting(&[&store]);
    load_of(&store).started();
    harness.input(Input::Unregister { store });
    harness.down();
    for _ in 0..1000 {
        harness.advance(SECOND * 2);
        if harness.core.next_deadline().is_some() {
            harness.up();
            harness.message(load_request(None, SECOND * 10));
            harness.advance(SECOND);
            harness.down();
        }
    }
    assert_eq!((harness.core.next_deadline(), harness.disconnects), (None, 1));
    assert!(harness.opened > 100, "it was given {} chances", harness.opened);
}

#[test]
fn a_removed_store_leaves_its_last_numbers() {
    let store = store("c");
    let mut harness = Harness::reporting(&[&store]);
    let load = load_of(&store);
    load.started();
    load.succeeded();
    store.uncategorized().dropped();
    drop(load);
    harness.input(Input::Unregister { store });
    assert_eq!(harness.closed, 0, "there is something to report");
    let stats = harness.next_stats();
    assert_eq!((counts(&stats[0]), stats[0].total_dropped_requests), ([1, 1, 0, 0], 1));
    assert_eq!(harness.closed, 0, "the report may still be on its way");
    harness.advance(SECOND);
    assert_eq!((harness.closed, harness.requests.len()), (1, 1));
}

#[test]
fn calls_that_outlive_their_cluster_are_reported_to_their_end() {
    let store = store("c");
    let mut harness = Harness::reporting(&[&store]);
    let load = load_of(&store);
    load.started();
    harness.input(Input::Unregister { store });
    assert_eq!(harness.next_only(), [1, 0, 0, 1]);
    assert_eq!(harness.next_only(), [0, 0, 0, 1]);
    load.failed();
    drop(load);
    assert_eq!(harness.next_only(), [0, 0, 1, 0]);
    harness.advance(SECOND * 2);
    assert_eq!(harness.closed, 1);
}

#[test]
fn a_cluster_that_returns_adds_to_its_earlier_counts() {
    let (old, new) = (store("c"), store("c"));
    let mut harness = Harness::reporting(&[&old]);
    let (old_load, new_load) = (load_of(&old), load_of(&new));
    old_load.started();
    old_load.started();
    harness.input(Input::Unregister { store: old });
    harness.register(&new);
    new_load.started();
    old_load.succeeded();
    assert_eq!(harness.next_only(), [3, 1, 0, 2]);
    old_load.succeeded();
    new_load.succeeded();
    drop(old_load);
    assert_eq!(harness.next_only(), [0, 2, 0, 0]);
    assert_eq!((harness.opened, harness.closed), (1, 0), "one stream for all of it");
}

#[test]
fn users_of_one_cluster_are_added_up() {
    let (one, two) = (store("c"), store("c"));
    let mut harness = Harness::reporting(&[&one, &two]);
    load_of(&one).started();
    load_of(&two).started();
    let throttle: Arc<str> = "throttle".into();
    one.category(&throttle).dropped();
    two.category(&throttle).dropped();
    let stats = harness.next_stats();
    assert_eq!(stats.len(), 1);
    assert_eq!((counts(&stats[0]), stats[0].total_dropped_requests), ([2, 0, 0, 2], 2));
}

#[test]
fn a37_55_the_same_cluster_with_another_service_name_is_another() {
    let plain = store("c");
    let named = Arc::new(LoadStore::new("c".into(), Some("e".into()), MetricSelection::default()));
    let mut harness = Harness::reporting(&[&plain, &named]);
    load_of(&plain).started();
    load_of(&named).started();
    let names: Vec<_> = harness.next_stats().into_iter().map(|stats| stats.cluster_service_name).collect();
    assert_eq!(names, ["", "e"]);
}

#[test]
fn a_call_that_was_never_sent_is_not_issued() {
    let store = store("c");
    let mut harness = Harness::reporting(&[&store]);
    let load = load_of(&store);
    load.started();
    load.withdrawn();
    assert!(harness.next_stats().is_empty());
    // One that was reported before it came back takes the place of the next.
    load.started();
    assert_eq!(harness.next_only(), [1, 0, 0, 1]);
    load.withdrawn();
    assert!(harness.next_stats().is_empty());
    load.started();
    assert_eq!(harness.next_only(), [0, 0, 0, 1]);
    load.succeeded();
    assert_eq!(harness.next_only(), [0, 1, 0, 0]);
}

#[test]
fn counters_that_nobody_holds_are_forgotten_once_reported() {
    let store = store("c");
    for zone in 0..10 {
        let load = store.locality(&locality(&zone.to_string()));
        load.started();
        load.failed();
        store.category(&zone.to_string().into()).dropped();
    }
    let load = store.take();
    assert_eq!((load.localities.len(), load.categories.len()), (10, 10));
    assert!(store.take().is_zero());
    // A new one of the same name begins at zero, and nothing is reported twice.
    let again = store.locality(&locality("3"));
    again.started();
    assert_eq!(store.take().localities[&*locality("3")].issued, 1);
}

#[test]
fn counters_that_nobody_holds_and_that_counted_nothing_need_no_report() {
    let store = store("c");
    for zone in 0..10 {
        let load = store.locality(&locality(&zone.to_string()));
        if zone == 3 {
            load.started();
            load.succeeded();
        }
    }
    let zones = |store: &LoadStore| store.view().localities.into_keys().collect::<Vec<_>>();
    assert_eq!(
        zones(&store),
        [(*locality("3")).clone(), (*locality("9")).clone()],
        "localities with calls, and the newest"
    );
}

#[test]
fn numbers_fit_together_while_calls_run() {
    let store = store("c");
    let (mut issued, mut ended, mut last_in_progress) = (0, 0, 0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let load = load_of(&store);
                scope.spawn(move || {
                    for call in 0..50_000 {
                        load.started();
                        if call % 3 == 0 { load.failed() } else { load.succeeded() }
                    }
                })
            })
            .collect();
        loop {
            let done = workers.iter().all(|worker| worker.is_finished());
            for counts in store.take().localities.into_values() {
                issued += counts.issued;
                ended += counts.succeeded + counts.failed;
                last_in_progress = counts.in_progress;
                assert_eq!(issued, ended + counts.in_progress, "in every report");
            }
            if done {
                break;
            }
        }
    });
    assert_eq!((issued, ended, last_in_progress), (200_000, 200_000, 0));
}
