//! A world of resources and names that changes at random.

use proxyless_sans_io::Rng;

use super::super::*;
use ResourceType::{
    AggregateClusterConfig as List, Cluster as Cds, ClusterLoadAssignment as Eds, Listener as Lds,
    RouteConfiguration as Rds,
};

pub(super) const CLUSTERS: u64 = 9;
pub(super) const LISTS: u64 = 3;
pub(super) const ROUTES: u64 = 2;
pub(super) const HOSTS: u64 = 2;

/// The current answers of the management server and of DNS.
#[derive(Default)]
pub(super) struct World {
    /// `None`: does not exist.
    pub(super) resources: BTreeMap<Key, Option<Resource>>,
    pub(super) dns: BTreeMap<DnsName, Vec<SocketAddr>>,
    pub(super) subscriptions: BTreeMap<Arc<str>, usize>,
}

impl World {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let mut world = Self::default();
        let names =
            |kind: &str, count| (0..count).map(move |i| Arc::from(format!("{kind}{i}"))).collect::<Vec<_>>();
        let mut keys: Vec<Key> = vec![(Lds, TARGET.into())];
        keys.extend(names("r", ROUTES).into_iter().map(|name| (Rds, name)));
        keys.extend(names("c", CLUSTERS).into_iter().map(|name| (Cds, name)));
        keys.extend(names("c", CLUSTERS).into_iter().map(|name| (Eds, name)));
        keys.extend(names("e", 1).into_iter().map(|name| (Eds, name)));
        keys.extend(names("l", LISTS).into_iter().map(|name| (List, name)));
        for key in keys {
            world.mutate(&key, rng);
        }
        for host in names("h", HOSTS) {
            world.mutate_dns(&DnsName { host, port: 1 }, rng);
        }
        world
    }

    pub(super) fn mutate(&mut self, key: &Key, rng: &mut Rng) {
        let rarely = |rng: &mut Rng, one_in| rng.below(one_in) == 0;
        let resource = match key.0 {
            Lds if rarely(rng, 12) => None,
            Lds if rarely(rng, 12) => {
                Some(Resource::Listener(Arc::new(Listener { kind: ListenerKind::Socket })))
            }
            Lds if rarely(rng, 2) => Some(listener(RouteSource::Rds(name("r", ROUTES, rng)))),
            Lds => Some(listener(RouteSource::Inline(routes(rng)))),
            _ if rarely(rng, 6) => None,
            Rds => Some(Resource::RouteConfiguration(routes(rng))),
            Cds => {
                let mut resource = cluster(match rng.below(8) {
                    0..=2 => ClusterKind::Eds { service_name: rarely(rng, 3).then(|| "e0".into()) },
                    3 => ClusterKind::LogicalDns { host: name("h", HOSTS, rng), port: 1 },
                    4..=5 => ClusterKind::Aggregate(children(rng)),
                    _ => ClusterKind::AggregateResource { name: name("l", LISTS, rng) },
                });
                if let Resource::Cluster(cluster) = &mut resource {
                    Arc::make_mut(cluster).circuit_breakers.max_requests = rng.below(3) as u32;
                }
                Some(resource)
            }
            Eds => Some(assignment(&ports(rng))),
            List => Some(Resource::AggregateClusterConfig(children(rng))),
        };
        self.resources.insert(key.clone(), resource);
    }

    pub(super) fn mutate_dns(&mut self, host: &DnsName, rng: &mut Rng) {
        let addresses = ports(rng).into_iter().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let addresses: Vec<_> = addresses.collect();
        // A failure keeps the previous addresses, which the oracle does not know: DNS never fails here.
        if !addresses.is_empty() || !self.dns.contains_key(host) {
            self.dns.insert(host.clone(), vec![SocketAddr::from(([127, 0, 0, 1], 1))]);
        }
        if !addresses.is_empty() {
            self.dns.insert(host.clone(), addresses);
        }
    }
}

pub(super) fn name(kind: &str, count: u64, rng: &mut Rng) -> Arc<str> {
    format!("{kind}{}", rng.below(count)).into()
}

pub(super) fn routes(rng: &mut Rng) -> Arc<RouteConfiguration> {
    let names: Vec<_> = (0..1 + rng.below(2)).map(|_| name("c", CLUSTERS, rng)).collect();
    let domain = if rng.below(10) == 0 { "elsewhere" } else { "*" };
    route_config(&[domain], &names.iter().map(|name| &**name).collect::<Vec<_>>())
}

pub(super) fn children(rng: &mut Rng) -> Arc<AggregateClusterConfig> {
    Arc::new(AggregateClusterConfig {
        clusters: (0..1 + rng.below(3)).map(|_| name("c", CLUSTERS, rng)).collect(),
    })
}

pub(super) fn ports(rng: &mut Rng) -> Vec<u16> {
    (0..rng.below(3)).map(|_| 1 + rng.below(60_000) as u16).collect()
}
