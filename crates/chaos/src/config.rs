//! The configuration that the control plane serves, and its random changes.

use std::net::SocketAddr;

use proxyless_sans_io::Rng;

use crate::topology::{
    BACKENDS, Backends, COOKIE, Channel, DNS_HOST, EAST, EDS_CLUSTERS, FAR, NEAR, RETRIES, WEST, members,
};
use crate::wire::{Item, Policy, Type, Zone};

/// The current configuration.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    addresses: [SocketAddr; BACKENDS],
    eds: Vec<Eds>,
    /// Weights of east and west; 0 removes one.
    route: [u32; 2],
    /// The first child of the aggregate cluster.
    first: usize,
}

#[derive(Clone, Debug)]
struct Eds {
    /// The listed backends.
    listed: Backends,
    zone_weights: [u32; 3],
    /// The backends with a different priority than usual, where there are priorities.
    moved: Backends,
    max_requests: u32,
    policy: Policy,
    /// Whether its Cluster resource exists.
    exists: bool,
}

/// The effect of a change, for the judge.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Does not affect the destination of RPCs.
    Nothing,
    Listed(usize, Backends),
    /// The set of east and west in the route.
    Route([bool; 2]),
    Exists(usize, bool),
    /// The client must reject the resource and keep the previous one.
    Rejected,
}

impl Config {
    pub(crate) fn new(addresses: [SocketAddr; BACKENDS]) -> Self {
        let eds = EDS_CLUSTERS.iter().map(|cluster| Eds {
            listed: home(cluster.home),
            zone_weights: [1; 3],
            moved: 0,
            max_requests: 4096,
            policy: Policy::Default,
            exists: true,
        });
        Self { addresses, eds: eds.collect(), route: [50, 50], first: NEAR }
    }

    /// Restores the initial configuration.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.addresses);
    }

    /// All resources.
    pub(crate) fn all(&self) -> Vec<Item> {
        let mut items = Vec::new();
        for channel in [Channel::Plain, Channel::Aggregate, Channel::Dns, Channel::Session] {
            let name = channel.service().to_owned();
            let cookie = (channel == Channel::Session).then(|| COOKIE.to_owned());
            items.push(Item::Listener { routes: format!("{name}-routes"), name, cookie });
        }
        items.push(self.plain_routes());
        for (channel, cluster) in
            [(Channel::Aggregate, "aggregate"), (Channel::Dns, "dns"), (Channel::Session, "sticky")]
        {
            let name = format!("{}-routes", channel.service());
            items.push(Item::Routes { name, clusters: vec![(cluster.to_owned(), 1)], retries: 0 });
        }
        items.push(self.aggregate());
        items.push(Item::DnsCluster { name: "dns".into(), host: DNS_HOST.into() });
        for cluster in 0..EDS_CLUSTERS.len() {
            if self.eds[cluster].exists {
                items.push(self.cluster(cluster));
            }
            items.push(self.endpoints(cluster));
        }
        items
    }

    /// All facts that affect the destination of RPCs.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        let listed = (0..EDS_CLUSTERS.len()).map(|cluster| Effect::Listed(cluster, self.eds[cluster].listed));
        let exists = (0..EDS_CLUSTERS.len()).map(|cluster| Effect::Exists(cluster, self.eds[cluster].exists));
        listed.chain(exists).chain([self.route_effect()]).collect()
    }

    // -- random changes -----------------------------------------------------

    /// A small random change.
    pub(crate) fn churn(&mut self, rng: &mut Rng) -> (Item, Effect) {
        let cluster = rng.below(EDS_CLUSTERS.len() as u64) as usize;
        match rng.below(1_000) {
            0..680 => {
                for weight in &mut self.eds[cluster].zone_weights {
                    *weight = 1 + rng.below(4) as u32;
                }
                (self.endpoints(cluster), Effect::Nothing)
            }
            680..780 => self.toggle(cluster, rng),
            780..880 => {
                let moved = &mut self.eds[NEAR].moved;
                *moved ^= 1 << pick(home(EDS_CLUSTERS[NEAR].home), rng);
                (self.endpoints(NEAR), Effect::Nothing)
            }
            880..930 => {
                let other = |rng: &mut Rng| if rng.below(3) == 0 { 0 } else { 20 + rng.below(60) as u32 };
                self.route = [20 + rng.below(60) as u32, other(rng)];
                if rng.below(2) == 0 {
                    self.route.swap(0, 1);
                }
                (self.plain_routes(), self.route_effect())
            }
            930..970 => {
                let eds = &mut self.eds[cluster];
                eds.max_requests = 4096 + rng.below(4096) as u32;
                eds.policy = if rng.below(2) == 0 { Policy::Default } else { Policy::Explicit };
                let effect = Effect::Exists(cluster, true);
                eds.exists = true;
                (self.cluster(cluster), effect)
            }
            970..980 => {
                self.first = if self.first == NEAR { FAR } else { NEAR };
                (self.aggregate(), Effect::Nothing)
            }
            980..990 => {
                let name = EDS_CLUSTERS[cluster].name.to_owned();
                let of = Type::Endpoints;
                let broken = rng.below(2) == 0;
                let item = if broken { Item::Garbage { of, name } } else { Item::Invalid { of, name } };
                (item, Effect::Rejected)
            }
            990..995 => (Item::Invalid { of: Type::Routes, name: "plain-routes".into() }, Effect::Rejected),
            _ => {
                let name = EDS_CLUSTERS[cluster].name.to_owned();
                (Item::Invalid { of: Type::Cluster, name }, Effect::Rejected)
            }
        }
    }

    /// The previous state of a resource that the client must reject.
    pub(crate) fn repair(&self, rejected: &Item) -> Item {
        let of = |name: &str| EDS_CLUSTERS.iter().position(|cluster| cluster.name == name);
        match rejected {
            Item::Garbage { of: Type::Endpoints, name } | Item::Invalid { of: Type::Endpoints, name } => {
                self.endpoints(of(name).unwrap_or(EAST))
            }
            Item::Invalid { of: Type::Cluster, name } => {
                let cluster = of(name).unwrap_or(EAST);
                if self.eds[cluster].exists {
                    self.cluster(cluster)
                } else {
                    Item::Remove { of: Type::Cluster, name: name.clone() }
                }
            }
            _ => self.plain_routes(),
        }
    }

    /// Removes or adds one endpoint; the last one stays.
    fn toggle(&mut self, cluster: usize, rng: &mut Rng) -> (Item, Effect) {
        let all = home(EDS_CLUSTERS[cluster].home);
        let listed = &mut self.eds[cluster].listed;
        let missing = all & !*listed;
        // Adding is more likely than removing, so that most endpoints are listed most of the time.
        let changed = if missing != 0 && rng.below(4) != 0 { missing } else { *listed };
        let next = *listed ^ (1 << pick(changed, rng));
        if next != 0 {
            *listed = next;
        }
        (self.endpoints(cluster), Effect::Listed(cluster, self.eds[cluster].listed))
    }

    /// Lists no endpoint, or all of them.
    pub(crate) fn set_listed(&mut self, cluster: usize, everybody: bool) -> (Item, Effect) {
        let listed = if everybody { home(EDS_CLUSTERS[cluster].home) } else { 0 };
        self.eds[cluster].listed = listed;
        (self.endpoints(cluster), Effect::Listed(cluster, listed))
    }

    /// Creates or deletes the Cluster resource.
    pub(crate) fn set_exists(&mut self, cluster: usize, exists: bool) -> (Item, Effect) {
        self.eds[cluster].exists = exists;
        let name = EDS_CLUSTERS[cluster].name.to_owned();
        let item = if exists { self.cluster(cluster) } else { Item::Remove { of: Type::Cluster, name } };
        (item, Effect::Exists(cluster, exists))
    }

    // -- resources ----------------------------------------------------------

    fn route_effect(&self) -> Effect {
        Effect::Route(self.route.map(|weight| weight > 0))
    }

    fn plain_routes(&self) -> Item {
        let clusters = [EAST, WEST].into_iter().zip(self.route);
        let clusters = clusters.map(|(cluster, weight)| (EDS_CLUSTERS[cluster].name.to_owned(), weight));
        Item::Routes { name: "plain-routes".into(), clusters: clusters.collect(), retries: RETRIES }
    }

    fn aggregate(&self) -> Item {
        let second = if self.first == NEAR { FAR } else { NEAR };
        let children = [self.first, second].map(|child| EDS_CLUSTERS[child].name.to_owned());
        Item::AggregateCluster { name: "aggregate".into(), children: children.into() }
    }

    fn cluster(&self, cluster: usize) -> Item {
        let Eds { max_requests, policy, .. } = self.eds[cluster];
        Item::EdsCluster { name: EDS_CLUSTERS[cluster].name.into(), max_requests, policy }
    }

    fn endpoints(&self, cluster: usize) -> Item {
        let Eds { listed, zone_weights, moved, .. } = &self.eds[cluster];
        let mut zones: Vec<Zone> = Vec::new();
        let home = EDS_CLUSTERS[cluster].home.iter().filter(|(backend, ..)| listed & (1 << backend) != 0);
        for (backend, zone, usual) in home {
            let priority = if moved & (1 << backend) != 0 { 1 - usual } else { *usual };
            let name = format!("zone-{zone}");
            let address = self.addresses[*backend];
            match zones.iter_mut().find(|other| other.name == name && other.priority == priority) {
                Some(zone) => zone.endpoints.push(address),
                None => {
                    let weight = zone_weights[usize::from(*zone)];
                    zones.push(Zone { name, weight, priority, endpoints: vec![address] });
                }
            }
        }
        // Priorities have no gaps.
        if !zones.iter().any(|zone| zone.priority == 0) {
            zones.iter_mut().for_each(|zone| zone.priority = 0);
        }
        Item::Endpoints { cluster: EDS_CLUSTERS[cluster].name.into(), zones }
    }
}

fn home(home: &[(usize, u8, u32)]) -> Backends {
    home.iter().fold(0, |set, (backend, ..)| set | 1 << backend)
}

/// A random member of a set; 0 if it is empty.
fn pick(set: Backends, rng: &mut Rng) -> usize {
    let nth = rng.below(u64::from(set.count_ones())) as usize;
    members(set).nth(nth).unwrap_or(0)
}
