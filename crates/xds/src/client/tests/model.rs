//! Random sequences against an independent model of an ADS server, which checks every request.

use std::collections::BTreeSet;

use proxyless_sans_io::Rng;

use super::*;
use crate::resource::{DecodeContext, decode};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const TYPES: [ResourceType; 3] = [RDS, CDS, EDS];

/// What an ADS server may demand of a client's requests, for one type on one stream.
#[derive(Default)]
struct TypeModel {
    requested: bool,
    /// Responses delivered and not answered yet: nonce, version, names of bad resources.
    unanswered: VecDeque<(String, String, Vec<String>)>,
    last_nonce: String,
}

#[derive(Default)]
struct Model {
    types: BTreeMap<ResourceType, TypeModel>,
    /// The last version of each type that the client accepted, over all streams.
    versions: BTreeMap<ResourceType, String>,
    node_seen: bool,
    subscribed: BTreeMap<ResourceType, Vec<String>>,
    answers: usize,
    rejected: usize,
}

impl Model {
    fn new_stream(&mut self) {
        // What the client accepted counts, even if its ACK did not get through.
        for (resource_type, model) in std::mem::take(&mut self.types) {
            if let Some((_, version, _)) = model.unanswered.into_iter().rfind(|(_, _, bad)| bad.is_empty()) {
                self.versions.insert(resource_type, version);
            }
        }
        self.subscribed.clear();
        self.node_seen = false;
    }

    /// `holds_all`: whether the client has every resource of the type that it watches.
    fn request(&mut self, request: &DiscoveryRequest, wanted: Vec<String>, holds_all: bool) {
        let resource_type = ResourceType::from_type_url(&request.type_url).expect("a known type");
        assert_eq!(
            request.node.is_some(),
            !self.node_seen,
            "the node is in the first request, and only there"
        );
        self.node_seen = true;
        assert_eq!(request.resource_names, wanted, "the names that are watched right now");
        let model = self.types.entry(resource_type).or_default();
        assert!(model.requested || !wanted.is_empty(), "a first request without names asks for everything");
        if !model.requested && !holds_all {
            self.versions.remove(&resource_type);
        }
        let held = self.versions.get(&resource_type).cloned().unwrap_or_default();
        match model.unanswered.front() {
            Some((nonce, version, bad)) if request.response_nonce == *nonce => {
                match &request.error_detail {
                    None => {
                        assert!(bad.is_empty(), "{bad:?} were accepted");
                        assert_eq!(request.version_info, *version);
                        self.versions.insert(resource_type, version.clone());
                    }
                    Some(error) => {
                        assert!(!bad.is_empty(), "rejected without reason: {}", error.message);
                        assert!(bad.iter().all(|name| error.message.contains(&format!("({name})"))));
                        assert_eq!(
                            (error.code, &request.version_info),
                            (3, &held),
                            "a NACK keeps the version"
                        );
                    }
                }
                model.unanswered.pop_front();
                self.answers += 1;
                self.rejected += usize::from(request.error_detail.is_some());
            }
            unanswered => {
                assert!(unanswered.is_none(), "a response was passed over");
                assert_eq!(request.response_nonce, model.last_nonce, "a stale nonce");
                assert_eq!(request.error_detail, None);
                assert_eq!(request.version_info, held);
            }
        }
        model.requested = true;
        self.subscribed.insert(resource_type, wanted);
    }

    fn delivered(&mut self, response: &DiscoveryResponse, bad: Vec<String>) {
        let resource_type = ResourceType::from_type_url(&response.type_url).unwrap();
        let model = self.types.entry(resource_type).or_default();
        model.last_nonce.clone_from(&response.nonce);
        model.unanswered.push_back((response.nonce.clone(), response.version_info.clone(), bad));
    }
}

/// What one watcher believes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Belief {
    resource: Option<Resource>,
    error: Option<String>,
}

struct World {
    h: Harness,
    rng: Rng,
    model: Model,
    watches: BTreeMap<u64, (ResourceType, &'static str)>,
    beliefs: BTreeMap<u64, Belief>,
    /// The watches of slow watchers.
    slow: BTreeSet<u64>,
    next: u64,
    stream: StreamId,
    up: bool,
    reads_used: usize,
    /// The last good bytes of each resource that were delivered.
    good: BTreeMap<(ResourceType, &'static str), Bytes>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let features = ServerFeatures {
            ignore_resource_deletion: rng.below(2) == 0,
            fail_on_data_errors: rng.below(2) == 0,
            ..Default::default()
        };
        let gates = if rng.below(2) == 0 { data_errors_gate() } else { Gates::default() };
        let mut config = config_with(features, gates);
        if rng.below(3) == 0 {
            config.nack_mode = NackMode::WholeResponse;
        }
        let mut h = Harness::new(config);
        (h.hold_sends, h.hold_tokens, h.watchers) = (true, true, 3);
        Self {
            h,
            rng,
            model: Model::default(),
            watches: BTreeMap::new(),
            beliefs: BTreeMap::new(),
            slow: BTreeSet::new(),
            next: 0,
            stream: StreamId::default(),
            up: false,
            reads_used: 0,
            good: BTreeMap::new(),
        }
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.rng.below(items.len() as u64) as usize]
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..=3 => {
                self.next += 1;
                let (resource_type, name) = (self.pick(&TYPES), self.pick(&NAMES));
                self.watches.insert(self.next, (resource_type, name));
                self.beliefs.insert(self.next, Belief::default());
                self.h.watch(self.next, resource_type, name);
            }
            4..=6 if !self.watches.is_empty() => {
                let ids: Vec<_> = self.watches.keys().copied().collect();
                let id = self.pick(&ids);
                self.watches.remove(&id);
                self.beliefs.remove(&id);
                self.h.unwatch(id);
            }
            7 | 8 if !self.watches.is_empty() && !self.up => self.come_up(),
            9..=11 if !self.h.unsent.is_empty() => self.h.send_done(),
            12..=14 if !self.h.tokens.is_empty() => self.h.release_token(),
            15..=17 if self.up && self.h.reads > self.reads_used => self.deliver(),
            18 if self.rng.below(6) == 0 && self.h.core.servers[0].stream.is_some() => self.h.down(),
            // What the dice chose is not possible now: time passes.
            _ => {
                let span = Duration::from_millis(self.rng.below(3000));
                self.h.advance(span);
            }
        }
        self.observe();
    }

    fn come_up(&mut self) {
        if self.h.core.servers[0].stream.is_some() {
            self.up = true;
            self.h.up();
        }
    }

    fn deliver(&mut self) {
        self.reads_used += 1;
        self.next += 1;
        let version = self.next.to_string();
        let requested: Vec<_> =
            self.model.types.iter().filter(|(_, model)| model.requested).map(|(kind, _)| *kind).collect();
        // Servers of this model answer questions only.
        if requested.is_empty() || self.rng.below(10) == 0 {
            return self.h.input(Input::Message { stream: self.stream, bytes: Bytes::from_static(b"\xff") });
        }
        let resource_type = self.pick(&requested);
        let (mut resources, mut bad, mut good) = (Vec::new(), Vec::new(), Vec::new());
        for name in NAMES {
            match self.rng.below(5) {
                0 if resource_type != RDS => {
                    bad.push(name.to_owned());
                    resources.push(if resource_type == CDS {
                        bad_cluster(name)
                    } else {
                        bad_assignment(name)
                    });
                }
                1 | 2 => {
                    let resource = match resource_type {
                        CDS => cluster(name, ["", "x", "y"][self.rng.below(3) as usize]),
                        EDS => assignment(name, 1 + self.rng.below(3) as u16),
                        _ => route(name),
                    };
                    good.push(((resource_type, name), resource.value.clone()));
                    resources.push(resource);
                }
                _ => {}
            }
        }
        if bad.is_empty() || self.h.core.config.nack_mode == NackMode::PerResource {
            self.good.extend(good);
        }
        let response = response(resource_type, &version, &format!("n{version}"), &resources);
        self.model.delivered(&response, bad);
        self.h.message(response);
    }

    /// Takes in what the core did, and checks it.
    fn observe(&mut self) {
        if self.h.stream != self.stream || self.h.core.servers[0].stream.is_none() {
            if self.h.stream != self.stream || self.up {
                self.h.unsent.clear();
            }
            self.stream = self.h.stream;
            self.up = false;
            self.reads_used = self.h.reads;
            self.model.new_stream();
        }
        for request in self.h.take_requests() {
            let resource_type = ResourceType::from_type_url(&request.type_url).unwrap();
            let wanted = self.wanted(resource_type);
            let holds_all =
                self.h.core.dump().iter().all(|d| d.resource_type != resource_type || d.raw.is_some());
            self.model.request(&request, wanted, holds_all);
        }
        for (id, event) in std::mem::take(&mut self.h.events) {
            let Some(belief) = self.beliefs.get_mut(&id) else { continue };
            match event {
                WatchEvent::Changed(Ok(resource)) => {
                    let is_known = belief.resource.as_ref() == Some(&resource);
                    assert!(!is_known || self.slow.contains(&id), "told twice");
                    *belief = Belief { resource: Some(resource), error: None };
                }
                WatchEvent::Changed(Err(error)) => {
                    *belief = Belief { resource: None, error: Some(error.to_string()) };
                }
                WatchEvent::Ambient(error) => {
                    assert!(belief.resource.is_some(), "an ambient error without a resource");
                    belief.error = error.map(|error| error.to_string());
                }
            }
        }
        let slow = |id: &&u64| self.h.core.is_slow(self.h.key(**id).watcher);
        self.slow = self.watches.keys().filter(slow).copied().collect();
        self.check_beliefs();
    }

    fn wanted(&self, resource_type: ResourceType) -> Vec<String> {
        let names: BTreeSet<_> =
            self.watches.values().filter(|(kind, _)| *kind == resource_type).map(|(_, name)| *name).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// CSDS shows what is watched, and watchers use what CSDS shows.
    fn check_beliefs(&self) {
        let dump: BTreeMap<_, _> = self
            .h
            .core
            .dump()
            .into_iter()
            .map(|dump| ((dump.resource_type, dump.name.to_string()), dump))
            .collect();
        let watched: BTreeSet<_> =
            self.watches.values().map(|(kind, name)| (*kind, (*name).to_owned())).collect();
        assert!(dump.keys().eq(watched.iter()), "CSDS shows what is watched");
        let mut first: BTreeMap<_, &Belief> = BTreeMap::new();
        for (id, (kind, name)) in &self.watches {
            let belief = &self.beliefs[id];
            let shown = &dump[&(*kind, (*name).to_owned())];
            // It hears of the latest changes when it has caught up.
            if self.slow.contains(id) {
                continue;
            }
            assert_eq!(belief.resource.is_some(), shown.raw.is_some(), "{shown:?}, {belief:?}");
            if let Some(raw) = &shown.raw {
                assert_eq!(raw.value, self.good[&(*kind, *name)], "the newest good version is in use");
                let decoded = decode(*kind, &raw.type_url, &raw.value, &DecodeContext::default());
                assert_eq!(decoded.resource.ok(), belief.resource, "what is shown is what is used");
                let other = first.entry((kind, name)).or_insert(belief);
                assert_eq!(*other, belief, "all watchers of a resource know the same");
            }
            if let (ResourceStatus::Acked, Some(error)) = (shown.status, &belief.error) {
                assert!(error.contains("unreachable"), "{belief:?}");
            }
        }
    }

    /// Lets everything settle, and checks that nothing is stuck.
    fn settle(&mut self) {
        self.h.advance(Duration::from_secs(200));
        self.observe();
        if self.watches.is_empty() {
            assert!(self.h.core.servers[0].stream.is_none() && self.h.core.next_deadline().is_none());
            return;
        }
        if !self.up {
            self.come_up();
            self.observe();
        }
        while !self.h.unsent.is_empty() || !self.h.tokens.is_empty() {
            if self.h.unsent.is_empty() {
                self.h.release_token()
            } else {
                self.h.send_done()
            }
            self.observe();
        }
        assert!(self.h.reads > self.reads_used, "the next message is awaited");
        assert!(
            self.model.types.values().all(|model| model.unanswered.is_empty()),
            "every response is answered"
        );
        for resource_type in TYPES {
            let subscribed = self.model.subscribed.get(&resource_type).cloned().unwrap_or_default();
            assert_eq!(subscribed, self.wanted(resource_type), "the server knows what is watched");
        }
        self.h.advance(Duration::from_secs(15));
        self.observe();
        let waiting = self.beliefs.values().filter(|belief| **belief == Belief::default()).count();
        assert_eq!(waiting, 0, "every watcher knows something when the timers are over");
    }
}

#[test]
fn random_sequences_keep_the_rules_of_ads() {
    let (mut streams, mut answers, mut rejected) = (0, 0, 0);
    for seed in 0..120 {
        let mut world = World::new(seed);
        for _ in 0..6 {
            for _ in 0..60 {
                world.step();
            }
            world.settle();
        }
        streams += world.h.opened;
        answers += world.model.answers;
        rejected += world.model.rejected;
    }
    // The sequences are worth something only if much happens in them.
    assert!(
        streams > 500 && answers > 2000 && rejected > 500,
        "{streams} streams, {answers} answers, {rejected} NACKs"
    );
}

#[test]
fn same_inputs_give_the_same_effects() {
    let run = || {
        let mut world = World::new(7);
        world.h.log = Some(Vec::new());
        for _ in 0..500 {
            world.step();
        }
        world.h.log.unwrap()
    };
    let log = run();
    assert!(log.len() > 100, "{}", log.len());
    assert_eq!(log, run());
}
