//! Random worlds and orders of events, against an oracle that knows the world and nothing of the manager.

mod oracle;
mod world;

use proxyless_sans_io::Rng;

use self::oracle::Expected;
use self::world::{CLUSTERS, HOSTS, World, name};
use super::*;
use ResourceType::Cluster as Cds;

#[test]
fn a74_any_order_of_events_ends_where_a_fresh_start_does() {
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let world = World::new(&mut rng);
        let mut run = Run::new(world);
        for round in 0..6 {
            for _ in 0..60 {
                run.step(&mut rng);
            }
            run.tell_everything();
            run.check_settled(&format!("seed {seed}, round {round}"));
        }
        let mut fresh = Run::new(run.world);
        for (name, count) in fresh.world.subscriptions.clone() {
            (0..count).for_each(|_| fresh.bed.manager.claim_cluster(&name));
        }
        fresh.bed.pump();
        fresh.tell_everything();
        fresh.check_settled(&format!("seed {seed}, fresh"));
    }
}

#[test]
fn same_events_same_effects() {
    let log = |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new(&mut rng);
        let mut run = Run::new(world);
        (0..300).for_each(|_| run.step(&mut rng));
        run.bed.log
    };
    assert_eq!(log(11), log(11));
}

/// The manager in a world that answers when it pleases.
struct Run {
    bed: Bed,
    world: World,
    /// The last event of each live watch.
    told: BTreeMap<WatchId, Option<Resource>>,
    told_dns: BTreeMap<DnsName, Vec<SocketAddr>>,
    before: Option<Arc<XdsConfig>>,
}

impl Run {
    fn new(world: World) -> Self {
        Self { bed: Bed::new(), world, told: BTreeMap::new(), told_dns: BTreeMap::new(), before: None }
    }

    /// Watches and names that do not know the newest answer.
    fn behind(&self) -> (Vec<Key>, Vec<DnsName>) {
        let watches =
            self.bed.watches.iter().filter(|(key, id)| self.told.get(id) != Some(&self.world.resources[key]));
        let names = self.bed.dns.iter().filter(|name| self.told_dns.get(name) != Some(&self.world.dns[name]));
        (watches.map(|(key, _)| key.clone()).collect(), names.cloned().collect())
    }

    fn tell(&mut self, key: &Key) {
        let answer = self.world.resources[key].clone();
        self.told.insert(self.bed.watches[key], answer.clone());
        match answer {
            Some(resource) => self.bed.give(&key.1, resource),
            None => self.bed.gone(key.0, &key.1),
        }
        self.check();
    }

    fn tell_dns(&mut self, name: &DnsName) {
        let addresses = self.world.dns[name].clone();
        self.told_dns.insert(name.clone(), addresses.clone());
        self.bed.manager.on_dns(name, Ok(addresses));
        self.bed.pump();
        self.check();
    }

    fn tell_everything(&mut self) {
        loop {
            let (watches, names) = self.behind();
            if watches.is_empty() && names.is_empty() {
                return;
            }
            for key in watches {
                if self.bed.watches.contains_key(&key) {
                    self.tell(&key);
                }
            }
            for name in names {
                if self.bed.dns.contains(&name) {
                    self.tell_dns(&name);
                }
            }
        }
    }

    /// The control plane is unreachable, also for watches without a result. Clusters that serve continue to.
    fn lose_the_stream(&mut self) {
        let serving = |bed: &Bed| {
            let Some(Ok(config)) = &bed.config else { return None };
            let shape = shape(config);
            let serves = |name: &str| shape.get(name).is_some_and(|text| text.starts_with("known "));
            // Of an aggregate it is the first leaf that counts.
            let first = |(name, text): (&String, &String)| match text.strip_prefix("leaves ") {
                Some(leaves) => {
                    leaves.split(' ').find(|leaf| serves(leaf)).map(|leaf| (name.clone(), leaf.into()))
                }
                None => serves(name).then(|| (name.clone(), text.clone())),
            };
            let routed = config.virtual_host.routes.iter().filter_map(|route| route.action.as_ref());
            let routed: BTreeSet<_> = routed.flat_map(named_by).map(|name| name.to_string()).collect();
            let routed = shape.iter().filter(|(name, _)| routed.contains(*name));
            let serving: BTreeMap<String, String> = routed.filter_map(first).collect();
            (!serving.is_empty()).then(|| (Arc::clone(&config.virtual_host), serving))
        };
        let before = serving(&self.bed);
        let untold = self.bed.watches.iter().filter(|(_, id)| !self.told.contains_key(id));
        for (of, name) in untold.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            if self.bed.is_watched(of, &name) {
                self.bed.unreachable(of, &name);
            }
        }
        if let Some((host, served)) = before {
            let (host_now, serving) = serving(&self.bed).expect("something serves");
            assert!(Arc::ptr_eq(&host, &host_now), "new routes are taken unseen");
            for (name, text) in served {
                assert_eq!(serving.get(&name), Some(&text), "{name}");
            }
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(12) {
            0..=2 => {
                let index = rng.below(self.world.resources.len() as u64) as usize;
                let key = self.world.resources.keys().nth(index).expect("an index in range").clone();
                self.world.mutate(&key, rng);
            }
            3 => {
                let host = DnsName { host: name("h", HOSTS, rng), port: 1 };
                self.world.mutate_dns(&host, rng);
            }
            4 => {
                let cluster = name("c", CLUSTERS, rng);
                *self.world.subscriptions.entry(Arc::clone(&cluster)).or_default() += 1;
                self.bed.manager.claim_cluster(&cluster);
                self.bed.pump();
            }
            5..=6 => {
                let Some(mut entry) = self.world.subscriptions.first_entry() else { return };
                let cluster = Arc::clone(entry.key());
                *entry.get_mut() -= 1;
                if *entry.get() == 0 {
                    entry.remove();
                }
                self.bed.manager.release_cluster(&cluster);
                self.bed.pump();
            }
            7 if rng.below(2) == 0 => self.lose_the_stream(),
            7 => {
                let told = self.bed.watches.iter().find(|(_, id)| matches!(self.told.get(id), Some(Some(_))));
                let Some(key) = told.map(|(key, _)| key.clone()) else { return };
                self.bed.ambient(key.0, &key.1, Some("stream lost"));
            }
            _ => {
                let (watches, names) = self.behind();
                match rng.below((watches.len() + names.len()).max(1) as u64) as usize {
                    i if i < watches.len() => self.tell(&watches[i]),
                    i if i < watches.len() + names.len() => self.tell_dns(&names[i - watches.len()]),
                    _ => {}
                }
            }
        }
        self.check();
    }

    /// The invariants of every configuration, even while answers are outstanding.
    fn check(&mut self) {
        self.told_dns.retain(|name, _| self.bed.dns.contains(name));
        let Some(Ok(config)) = self.bed.config.clone() else {
            self.before = None;
            return;
        };
        for name in
            config.virtual_host.routes.iter().filter_map(|route| route.action.as_ref()).flat_map(named_by)
        {
            match config.clusters.get(&name) {
                Some(Ok(cluster)) => assert!(!cluster.is_pending(), "the route's {name} is not loaded"),
                Some(Err(_)) => {}
                None => panic!("the route's {name} is not in its own configuration"),
            }
        }
        for name in config.clusters.keys() {
            assert!(self.bed.is_watched(Cds, name), "{name} is in use but not watched");
        }
        for (root, cluster) in config.clusters.iter() {
            let Some(leaves) = leaves_of(cluster) else { continue };
            assert!(!leaves.is_empty(), "{root}");
            let before = self
                .before
                .as_ref()
                .and_then(|config| Some((config, leaves_of(config.clusters.get(root)?)?)));
            if let Some((before, old)) = before {
                let pending_above =
                    |config: &XdsConfig, leaves: &[Arc<str>], place: usize| -> BTreeSet<Arc<str>> {
                        leaves[..place].iter().filter(|leaf| is_pending(config, leaf)).cloned().collect()
                    };
                let may_serve =
                    |name: &Arc<str>| matches!(before.clusters.get(name), Some(Ok(c)) if !c.is_pending());
                let unsettled = leaves.iter().any(|leaf| is_pending(&config, leaf));
                for (place, leaf) in old.iter().enumerate().filter(|(_, leaf)| unsettled && may_serve(leaf)) {
                    let now = leaves.iter().position(|other| other == leaf);
                    let now = now.unwrap_or_else(|| {
                        panic!("{root}: {leaves:?} gives {leaf} up for something unknown")
                    });
                    let above = pending_above(&config, leaves, now);
                    let above_before = pending_above(before, old, place);
                    assert!(
                        above.is_subset(&above_before),
                        "{root}: {leaves:?} puts something unknown above {leaf}"
                    );
                    assert!(!is_pending(&config, leaf), "{root}: {leaf} forgot its endpoints");
                }
            }
            for leaf in leaves {
                match config.clusters.get(leaf) {
                    Some(leaf) => assert!(leaves_of(leaf).is_none(), "{root}: {leaf:?} is not a leaf"),
                    None => panic!("{root}: its leaf {leaf} is not in the configuration"),
                }
            }
        }
        self.before = Some(config);
    }

    /// The invariants once everything is answered.
    fn check_settled(&self, label: &str) {
        let expected = Expected::of(&self.world);
        let watched: BTreeSet<Key> = self.bed.watches.keys().cloned().collect();
        assert_eq!(watched, expected.watched, "{label}");
        assert_eq!(self.bed.dns, expected.dns, "{label}");
        match &self.bed.config {
            Some(Err(_)) => assert!(expected.failed, "{label}"),
            Some(Ok(config)) => {
                assert!(!expected.failed, "{label}");
                let actual = shape(config).into_iter();
                let actual: BTreeMap<_, _> = actual
                    .map(|(name, text)| (name, if text.starts_with("error") { "error".into() } else { text }))
                    .collect();
                assert_eq!(actual, expected.clusters, "{label}");
                for (name, entry) in config.clusters.iter() {
                    let Some(cluster) = entry.as_ref().ok().and_then(|config| config.cluster()) else {
                        continue;
                    };
                    let newest = &self.world.resources[&(Cds, Arc::clone(name))];
                    assert_eq!(
                        newest,
                        &Some(Resource::Cluster(Arc::clone(cluster))),
                        "{label}: {name} is old"
                    );
                }
            }
            None => panic!("{label}: everything is answered, but nothing published"),
        }
    }
}

fn leaves_of(cluster: &Result<Arc<crate::xds_config::ClusterConfig>, Arc<str>>) -> Option<&[Arc<str>]> {
    match &cluster.as_ref().ok()?.state {
        ClusterState::Aggregate { leaf_clusters, .. } => Some(leaf_clusters),
        ClusterState::Pending | ClusterState::Leaf { .. } => None,
    }
}

fn named_by(action: &RouteAction) -> Vec<Arc<str>> {
    match &action.cluster {
        ClusterSpecifier::Cluster(name) => vec![Arc::clone(name)],
        ClusterSpecifier::Weighted(weighted) => weighted.iter().map(|c| Arc::clone(&c.name)).collect(),
    }
}

fn is_pending(config: &XdsConfig, name: &Arc<str>) -> bool {
    matches!(config.clusters.get(name), Some(Ok(cluster)) if cluster.is_pending())
}
