//! The conservation law: in all reports of a cluster together, issued requests are succeeded plus failed plus those in
//! progress, through any mix of stream cuts, changes of the server's request, and stores that come and go.

use proxyless_sans_io::Rng;

use super::*;

const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const ZONES: [&str; 2] = ["near", "far"];

/// The calls of a cluster, as made or as reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    issued: u64,
    succeeded: u64,
    failed: u64,
    dropped: u64,
}

/// A call that was sent, in the store of its time.
struct Call {
    cluster: usize,
    load: Arc<LocalityLoad>,
}

struct World {
    harness: Harness,
    rng: Rng,
    stores: [Option<Arc<LoadStore>>; 3],
    calls: Vec<Call>,
    truth: [Sums; 3],
    /// Requests that the tally has seen.
    seen: usize,
    heard: [Sums; 3],
    in_progress: [u64; 3],
    /// Up to when each cluster's load was taken or thrown away.
    taken: [Time; 3],
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            harness: Harness::new(),
            rng: Rng::new(seed),
            stores: [const { None }; 3],
            calls: Vec::new(),
            truth: [Sums::default(); 3],
            seen: 0,
            heard: [Sums::default(); 3],
            in_progress: [0; 3],
            taken: [Time::ZERO; 3],
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    /// One random thing happens. `picky`: the server may also ask for some clusters only.
    fn step(&mut self, picky: bool) {
        let cluster = self.below(CLUSTERS.len());
        match self.below(40) {
            0 => self.toggle(cluster),
            1 => self.rebuild(cluster),
            2 => self.harness.down(),
            // A server that changes its mind does so between reports, which keeps `forget_unwanted` simple.
            3..=6 if picky && !self.harness.unsent.is_empty() => self.harness.release_sends(),
            3..=6 => {
                self.harness.up();
                let interval = SECOND * (1 + self.below(3) as u32);
                let some = [CLUSTERS[cluster]];
                let clusters = (picky && self.below(2) == 0).then_some(&some[..]);
                self.harness.message(load_request(clusters, interval));
            }
            7 => self.harness.message(Bytes::from_static(b"\xff")),
            8 => self.harness.hold_sends = true,
            9 | 10 => self.harness.release_sends(),
            11..=17 => {
                let millis = self.below(1500) as u64;
                self.harness.advance(Duration::from_millis(millis));
            }
            18..=28 => self.start(cluster),
            29 => self.drop_one(cluster),
            _ => self.finish(),
        }
        if picky {
            self.forget_unwanted();
        }
        self.hear();
    }

    fn toggle(&mut self, cluster: usize) {
        match self.stores[cluster].take() {
            Some(store) => self.harness.input(Input::Unregister { store }),
            None => self.appear(cluster),
        }
    }

    fn appear(&mut self, cluster: usize) {
        let store = store(CLUSTERS[cluster]);
        self.harness.register(&store);
        self.stores[cluster] = Some(store);
    }

    /// A new policy takes the place of the old: its store comes before the old one goes.
    fn rebuild(&mut self, cluster: usize) {
        if let Some(old) = self.stores[cluster].take() {
            self.appear(cluster);
            self.harness.input(Input::Unregister { store: old });
        }
    }

    fn start(&mut self, cluster: usize) {
        let zone = locality(ZONES[self.below(ZONES.len())]);
        let unsent = self.below(8) == 0;
        let Some(store) = &self.stores[cluster] else { return };
        let load = store.locality(&zone);
        load.started();
        if unsent {
            return load.withdrawn();
        }
        self.truth[cluster].issued += 1;
        self.calls.push(Call { cluster, load });
    }

    fn finish(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let at = self.below(self.calls.len());
        let call = self.calls.swap_remove(at);
        if self.below(3) == 0 {
            call.load.failed();
            self.truth[call.cluster].failed += 1;
        } else {
            call.load.succeeded();
            self.truth[call.cluster].succeeded += 1;
        }
    }

    fn drop_one(&mut self, cluster: usize) {
        let categorized = self.below(2) == 0;
        let Some(store) = &self.stores[cluster] else { return };
        if categorized {
            store.category(&"category".into()).dropped();
        } else {
            store.uncategorized().dropped();
        }
        self.truth[cluster].dropped += 1;
    }

    /// The server sums the reports, and checks the law in each.
    fn hear(&mut self) {
        for request in &self.harness.requests[self.seen..] {
            for stats in &request.cluster_stats {
                let cluster = CLUSTERS.iter().position(|name| *name == stats.cluster_name).unwrap();
                let [issued, succeeded, failed, in_progress] = counts(stats);
                let heard = &mut self.heard[cluster];
                heard.issued += issued;
                heard.succeeded += succeeded;
                heard.failed += failed;
                heard.dropped += stats.total_dropped_requests;
                self.in_progress[cluster] = in_progress;
                assert_eq!(heard.issued, heard.succeeded + heard.failed + in_progress, "{stats:?}");
                let interval = stats.load_report_interval.as_ref().unwrap();
                assert!(interval.seconds > 0 || interval.nanos > 0, "{stats:?}");
            }
        }
        self.seen = self.harness.requests.len();
    }

    /// A cluster that the server does not ask for is forgotten: later counts start at zero. (So does a cluster
    /// without load, which changes nothing.)
    fn forget_unwanted(&mut self) {
        let Harness { core, requests, unsent, .. } = &self.harness;
        let reports = requests[self.seen..].iter().chain(unsent.iter().map(|(_, request)| request));
        let reported: Vec<_> = reports.flat_map(|request| &request.cluster_stats).collect();
        for (cluster, name) in CLUSTERS.into_iter().enumerate() {
            let since =
                core.clusters.iter().find(|(key, _)| &*key.cluster == name).map(|(_, known)| known.since);
            let taken = since.unwrap_or(self.harness.now);
            if taken > self.taken[cluster] && !reported.iter().any(|stats| stats.cluster_name == name) {
                (self.heard[cluster], self.in_progress[cluster]) = (Sums::default(), 0);
            }
            self.taken[cluster] = taken.max(self.taken[cluster]);
        }
    }

    /// The network is well, and a report of everything comes through.
    fn settle(&mut self) {
        self.harness.down();
        self.harness.release_sends();
        self.harness.advance(SECOND * 200);
        self.harness.up();
        self.harness.message(load_request(None, SECOND));
        self.harness.advance(SECOND * 3);
        self.hear();
    }
}

#[test]
fn the_server_hears_of_every_call_exactly_once() {
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step(false);
        }
        world.settle();
        assert_eq!(world.heard, world.truth, "seed {seed}");
        let in_progress = |cluster| world.calls.iter().filter(|call| call.cluster == cluster).count() as u64;
        assert_eq!(world.in_progress, [in_progress(0), in_progress(1), in_progress(2)], "seed {seed}");
        // All calls end, all stores go: one more report, and the stream is closed.
        while !world.calls.is_empty() {
            world.finish();
        }
        for cluster in 0..CLUSTERS.len() {
            if world.stores[cluster].is_some() {
                world.toggle(cluster);
            }
        }
        world.harness.advance(SECOND * 3);
        world.hear();
        assert_eq!(world.heard, world.truth, "seed {seed}");
        assert_eq!(world.in_progress, [0; 3], "seed {seed}");
        assert_eq!(world.harness.core.next_deadline(), None, "seed {seed}");
    }
}

#[test]
fn the_law_holds_for_a_server_that_changes_its_mind() {
    let mut reports = 0;
    for seed in 1000..1300 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step(true);
        }
        reports += world.seen;
        world.settle();
        for (heard, truth) in world.heard.iter().zip(&world.truth) {
            assert!(heard.issued <= truth.issued && heard.dropped <= truth.dropped, "seed {seed}");
            assert!(heard.succeeded <= truth.succeeded && heard.failed <= truth.failed, "seed {seed}");
        }
    }
    assert!(reports > 3000, "{reports} requests test nothing");
}

#[test]
fn the_same_inputs_give_the_same_requests() {
    let run = |seed| {
        let mut world = World::new(seed);
        (0..400).for_each(|_| world.step(true));
        world.harness.requests.iter().map(|request| request.encode_to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
