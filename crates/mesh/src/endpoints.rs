//! From the endpoints of an EDS resource to the endpoints that the policies get: by priority, then by locality.
//!
//! Localities that did not change keep their slice in memory, wherever they moved, so that the levels below see at a
//! glance that there is nothing to do. DRAINING endpoints are among them: xds_override_host, which needs them, takes them
//! out before it hands the rest to the policies that pick (A75-20).

use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_balancer::api::{Endpoint, Endpoints, Group, HealthStatus, Locality};
use proxyless_xds::resource::{self, ClusterLoadAssignment, EndpointHealth, LbEndpoint, LocalityEndpoints};

/// What the endpoints of one priority look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// One group per locality, for xds_wrr_locality.
    Localities,
    /// One list of all, for policies that pick locality and endpoint in one step (gRFC A42).
    Flat,
}

/// Makes [`Endpoints`], and remembers the last for reuse.
#[derive(Debug)]
pub struct EndpointTable {
    last: Endpoints,
}

impl Default for EndpointTable {
    fn default() -> Self {
        Self { last: Endpoints::none() }
    }
}

impl EndpointTable {
    /// The endpoints of an assignment; the group of each priority gets its name from `names`. Priorities without a
    /// name are left out.
    pub fn update(
        &mut self,
        assignment: &ClusterLoadAssignment,
        names: &[Arc<str>],
        grouping: Grouping,
    ) -> Endpoints {
        let known = Known::new(&self.last);
        let priorities = names.iter().zip(&assignment.priorities).map(|(name, localities)| {
            let endpoints = match grouping {
                Grouping::Localities => known.by_locality(localities),
                Grouping::Flat => known.flat(name, localities),
            };
            Group { name: Arc::clone(name), weight: 1, locality: None, endpoints }
        });
        let priorities = Endpoints::Groups(priorities.collect());
        if priorities != self.last {
            self.last = priorities;
        }
        self.last.clone()
    }
}

/// The groups of the last update, by name. A locality may be in several priorities.
struct Known<'a> {
    priorities: BTreeMap<&'a str, &'a Group>,
    localities: BTreeMap<&'a str, Vec<&'a Group>>,
}

impl<'a> Known<'a> {
    fn new(last: &'a Endpoints) -> Self {
        let mut known = Self { priorities: BTreeMap::new(), localities: BTreeMap::new() };
        for priority in last.groups() {
            known.priorities.insert(&priority.name, priority);
            for locality in priority.endpoints.groups() {
                known.localities.entry(&locality.name).or_default().push(locality);
            }
        }
        known
    }

    fn by_locality(&self, localities: &[LocalityEndpoints]) -> Endpoints {
        let groups = Endpoints::Groups(localities.iter().map(|locality| self.locality(locality)).collect());
        // As a whole: a flat list has no groups either, but it is not the same as none.
        match self.priorities.values().find(|known| known.endpoints == groups) {
            Some(known) => known.endpoints.clone(),
            None => groups,
        }
    }

    fn locality(&self, new: &LocalityEndpoints) -> Group {
        let locality = convert_locality(&new.locality);
        let name = locality.to_string();
        let known = self.localities.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        let list = |locality: &Arc<Locality>| -> Vec<Endpoint> {
            new.endpoints.iter().map(|endpoint| convert(endpoint, endpoint.weight, locality)).collect()
        };
        let Some((first, locality)) = known.first().and_then(|first| Some((first, first.locality.as_ref()?)))
        else {
            let locality = Arc::new(locality);
            let endpoints = Endpoints::List(list(&locality).into());
            return Group { name: name.into(), weight: new.weight, locality: Some(locality), endpoints };
        };
        let list = list(locality);
        let endpoints = match known.iter().find(|known| *known.endpoints.list() == *list) {
            Some(known) => known.endpoints.clone(),
            None => Endpoints::List(list.into()),
        };
        Group {
            name: Arc::clone(&first.name),
            weight: new.weight,
            locality: Some(Arc::clone(locality)),
            endpoints,
        }
    }

    fn flat(&self, priority: &str, localities: &[LocalityEndpoints]) -> Endpoints {
        let places: Vec<_> =
            localities.iter().map(|locality| Arc::new(convert_locality(&locality.locality))).collect();
        let weighted = || {
            let localities = localities.iter().zip(&places);
            localities.flat_map(|(locality, place)| {
                locality.endpoints.iter().map(move |e| (e, product(locality, e), place))
            })
        };
        // A42: an endpoint's share of the ring is its share of its locality times the locality's share.
        let largest = weighted().map(|(_, weight, _)| weight).max().unwrap_or(0);
        let shift = (u64::BITS - largest.leading_zeros()).saturating_sub(u32::BITS);
        let list: Vec<Endpoint> = weighted()
            .map(|(endpoint, weight, place)| {
                convert(endpoint, u32::try_from((weight >> shift).max(1)).unwrap_or(u32::MAX), place)
            })
            .collect();
        let list = Endpoints::List(list.into());
        match self.priorities.get(priority) {
            Some(known) if known.endpoints == list => known.endpoints.clone(),
            _ => list,
        }
    }
}

fn product(locality: &LocalityEndpoints, endpoint: &LbEndpoint) -> u64 {
    u64::from(locality.weight) * u64::from(endpoint.weight)
}

fn convert(endpoint: &LbEndpoint, weight: u32, locality: &Arc<Locality>) -> Endpoint {
    Endpoint {
        addresses: Arc::clone(&endpoint.addresses),
        weight,
        health: match endpoint.health {
            EndpointHealth::Unknown => HealthStatus::Unknown,
            EndpointHealth::Healthy => HealthStatus::Healthy,
            EndpointHealth::Draining => HealthStatus::Draining,
        },
        hostname: endpoint.hostname.clone(),
        hash_key: endpoint.hash_key.clone(),
        locality: Some(Arc::clone(locality)),
    }
}

fn convert_locality(locality: &resource::Locality) -> Locality {
    let resource::Locality { region, zone, sub_zone } = locality.clone();
    Locality { region, zone, sub_zone }
}

#[cfg(test)]
mod tests;
