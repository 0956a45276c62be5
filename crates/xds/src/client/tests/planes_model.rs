//! Random outages of several servers with shared authorities, against the laws of gRFC A47 and A71.

use std::collections::BTreeSet;

use proxyless_sans_io::Rng;

use super::planes::Planes;
use super::*;

/// The servers of each authority, by priority. Servers are shared, and in different orders.
const LISTS: [(&str, &[usize]); 4] = [("", &[0, 1]), ("a", &[1, 2]), ("b", &[2, 0, 1]), ("c", &[2])];
const SERVERS: usize = 3;
const IDS: [&str; 3] = ["x", "y", "z"];

/// A name of the authority; the first one has the plain names.
fn name(authority: &str, id: &str) -> String {
    match authority {
        "" => id.to_owned(),
        authority => format!("xdstp://{authority}/envoy.config.endpoint.v3.ClusterLoadAssignment/{id}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Answers,
    /// Streams open, but nothing is sent.
    Silent,
    Refuses,
}

struct World {
    p: Planes,
    rng: Rng,
    moods: [Mood; SERVERS],
    /// The current version of each server, which is part of its ports.
    versions: [u16; SERVERS],
    up: BTreeSet<StreamId>,
    /// The streams on which a response was sent.
    answered: BTreeSet<StreamId>,
    watches: BTreeMap<u64, (&'static str, String)>,
    /// Whether a watch has data.
    has_data: BTreeMap<u64, bool>,
    last_watch: u64,
    /// How often an authority used a server that is not its first.
    fallbacks: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let (default, named) = LISTS.split_first().unwrap();
        Self {
            p: Planes::new(default.1, named),
            rng: Rng::new(seed),
            moods: [Mood::Answers; SERVERS],
            versions: [1; SERVERS],
            up: BTreeSet::new(),
            answered: BTreeSet::new(),
            watches: BTreeMap::new(),
            has_data: BTreeMap::new(),
            last_watch: 0,
            fallbacks: 0,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    fn step(&mut self) {
        match self.below(12) {
            0..=2 => {
                let ((authority, _), id) = (LISTS[self.below(4)], IDS[self.below(3)]);
                self.last_watch += 1;
                let name = name(authority, id);
                self.watches.insert(self.last_watch, (authority, name.clone()));
                self.p.watch(self.last_watch, EDS, &name);
            }
            3 => {
                let ids: Vec<_> = self.watches.keys().copied().collect();
                if !ids.is_empty() {
                    let id = ids[self.below(ids.len())];
                    self.watches.remove(&id);
                    self.p.unwatch(id);
                }
            }
            4 | 5 => {
                let server = self.below(SERVERS);
                let mood = [Mood::Answers, Mood::Silent, Mood::Refuses][self.below(3)];
                self.moods[server] = mood;
                if mood == Mood::Refuses && self.p.streams.contains_key(&server) {
                    self.p.down(server);
                }
            }
            6 => {
                let server = self.below(SERVERS);
                self.versions[server] += 1;
                self.push(server);
            }
            7..=9 => self.serve(),
            _ => {
                let span = [10, 700, 3_000, 16_000][self.below(4)];
                self.p.advance(Duration::from_millis(span));
            }
        }
        self.check();
    }

    /// Each server deals with its stream: refuses it, lets it come up, or sends what is subscribed.
    fn serve(&mut self) {
        for server in 0..SERVERS {
            let Some(&stream) = self.p.streams.get(&server) else { continue };
            match self.moods[server] {
                Mood::Refuses => self.p.down(server),
                Mood::Silent | Mood::Answers if !self.up.contains(&stream) => {
                    self.up.insert(stream);
                    self.p.up(server);
                }
                Mood::Silent => {}
                Mood::Answers => self.push(server),
            }
            self.check();
        }
    }

    fn push(&mut self, server: usize) {
        let Some(&stream) = self.p.streams.get(&server).filter(|stream| self.up.contains(stream)) else {
            return;
        };
        let names = self.p.names(server, EDS);
        if names.is_empty() || self.moods[server] != Mood::Answers {
            return;
        }
        let port = server as u16 * 10_000 + self.versions[server];
        let resources: Vec<_> = names.iter().map(|name| assignment(name, port)).collect();
        let version = self.versions[server].to_string();
        self.answered.insert(stream);
        self.p.respond(server, EDS, &version, &resources);
    }

    fn check(&mut self) {
        for (id, event) in std::mem::take(&mut self.p.events) {
            let has_data = self.has_data.entry(id).or_default();
            match event {
                WatchEvent::Changed(Ok(_)) => *has_data = true,
                WatchEvent::Changed(Err(error)) => {
                    assert!(
                        !(*has_data && error.kind.is_about_server()),
                        "an outage takes no data away: {error}"
                    );
                    *has_data = false;
                }
                WatchEvent::Ambient(_) => assert!(*has_data),
            }
        }
        let mut needed = BTreeSet::new();
        for (authority, list) in LISTS {
            if !self.watches.values().any(|(of, _)| *of == authority) {
                continue;
            }
            let has_answered =
                |server: &usize| self.p.streams.get(server).is_some_and(|open| self.answered.contains(open));
            // A71-14: nothing below a server that has answered is used.
            let best = list.iter().position(has_answered).unwrap_or(list.len() - 1);
            needed.extend(&list[..=best]);
        }
        let open: BTreeSet<_> = self.p.open().into_iter().collect();
        assert!(open.is_subset(&needed), "streams to {open:?}, needed are {needed:?}");
        let connected = &self.p.connected;
        assert!(connected.is_subset(&needed), "connected to {connected:?}, needed are {needed:?}");
        let ports = self.p.ports();
        for (authority, name) in self.watches.values() {
            let (_, list) = LISTS.into_iter().find(|(of, _)| of == authority).unwrap();
            // A47-20: the data comes from a server of the authority.
            let port = ports[name];
            let server = usize::from(port / 10_000);
            assert!(port == 0 || list.contains(&server), "{name} of server {server}");
            self.fallbacks += usize::from(port != 0 && server != list[0]);
        }
        for server in self.p.open() {
            for name in self.p.names(server, EDS) {
                let (authority, _) = self.watches.values().find(|(_, watched)| watched == name).unwrap();
                let (_, list) = LISTS.into_iter().find(|(of, _)| of == authority).unwrap();
                assert!(list.contains(&server), "{name} is requested from server {server}");
            }
        }
    }

    /// After all outages everything comes from the first server of each authority, and no other is used.
    fn settle(&mut self) {
        self.moods = [Mood::Answers; SERVERS];
        for _ in 0..4 {
            self.p.advance(Duration::from_secs(150));
            self.serve();
            self.serve();
        }
        let mut firsts = BTreeSet::new();
        for (authority, name) in self.watches.values() {
            let (_, list) = LISTS.into_iter().find(|(of, _)| of == authority).unwrap();
            firsts.insert(list[0]);
            let port = list[0] as u16 * 10_000 + self.versions[list[0]];
            assert_eq!(self.p.port(name), port, "{name}");
        }
        assert_eq!(self.p.open(), firsts.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a47_20_a71_13_14_random_outages_keep_the_laws_of_authorities_and_fallback() {
    let mut fallbacks = 0;
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..5 {
            for _ in 0..60 {
                world.step();
            }
            world.settle();
        }
        fallbacks += world.fallbacks;
    }
    assert!(fallbacks > 1_000, "{fallbacks} resources were used from another server than the first");
}
