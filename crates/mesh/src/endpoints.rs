//! Converts the endpoints of an EDS resource to those of the policies: by priority, then by locality.
//!
//! Unchanged localities keep their slice in memory, even if they moved, and unchanged endpoints in changed localities
//! keep their allocation, so that the levels below recognise them by pointer. DRAINING endpoints are included:
//! xds_override_host needs them, and removes them before it passes the rest to the policies that pick (A75-20).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_balancer::api::{Endpoint, Endpoints, Group, Locality};
use proxyless_sans_io::values::EndpointExtras;
use proxyless_sans_io::{Interner, Nearby};
use proxyless_xds::resource::{ClusterLoadAssignment, LbEndpoint, LocalityEndpoints};

use crate::security::ClusterSecurity;

/// The form of a priority's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// One group per locality, for xds_wrr_locality.
    Localities,
    /// A single list, for policies that pick locality and endpoint in one step (gRFC A42).
    Flat,
}

impl Grouping {
    /// Whether there is a group per locality.
    #[must_use]
    pub fn is_by_locality(self) -> bool {
        self == Self::Localities
    }
}

/// The settings of a cluster that apply to its endpoints.
#[derive(Clone, Copy)]
pub struct EndpointSettings<'a> {
    /// The TLS settings.
    pub security: &'a ClusterSecurity,
    /// Whether endpoints with a proxy are connected to through it (gRFC A86).
    pub http_connect: bool,
    /// The names of localities, which are the same in many clusters.
    pub names: &'a Interner<str>,
}

/// Builds [`Endpoints`], and keeps the last ones for reuse.
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
    /// The endpoints of an assignment; `names` has the names of the priorities. Priorities without a name are left out.
    pub fn update(
        &mut self,
        assignment: &ClusterLoadAssignment,
        names: &[Arc<str>],
        grouping: Grouping,
        settings: EndpointSettings<'_>,
    ) -> Endpoints {
        let known = Known::new(&self.last, settings);
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
    /// Those of the new endpoints.
    settings: EndpointSettings<'a>,
}

impl<'a> Known<'a> {
    fn new(last: &'a Endpoints, settings: EndpointSettings<'a>) -> Self {
        let mut known = Self { priorities: BTreeMap::new(), localities: BTreeMap::new(), settings };
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
        // Compared as a whole: a flat list has no groups either, but differs from an empty one.
        match self.priorities.values().find(|known| known.endpoints == groups) {
            Some(known) => known.endpoints.clone(),
            None => groups,
        }
    }

    fn locality(&self, new: &LocalityEndpoints) -> Group {
        let name = unique_name(&new.locality);
        let known = self.localities.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        let first = known.first();
        let locality = first.and_then(|first| first.locality.as_ref()).unwrap_or(&new.locality);
        let same = |new: &LbEndpoint, known: &Endpoint| self.is_same(new, new.weight, known);
        let same_list = |known: &&&Group| {
            let known = known.endpoints.list();
            known.len() == new.endpoints.len()
                && new.endpoints.iter().zip(known).all(|(new, known)| same(new, known))
        };
        let endpoints = match known.iter().find(same_list) {
            Some(known) => known.endpoints.clone(),
            None => {
                let known = first.map_or(&[][..], |first| first.endpoints.list());
                let mut cursor = Nearby::default();
                let endpoints = new.endpoints.iter().enumerate().map(|(place, endpoint)| {
                    let found = cursor.find(known, place, |known| same(endpoint, known));
                    found
                        .and_then(|at| known.get(at).cloned())
                        .unwrap_or_else(|| Arc::new(self.convert(endpoint, endpoint.weight, locality)))
                });
                Endpoints::List(endpoints.collect())
            }
        };
        Group {
            name: first.map_or_else(|| self.settings.names.share(name), |first| Arc::clone(&first.name)),
            weight: new.weight,
            locality: Some(Arc::clone(locality)),
            endpoints,
        }
    }

    fn flat(&self, priority: &str, localities: &[LocalityEndpoints]) -> Endpoints {
        // A113-02: an endpoint's weight is its share of its locality times the locality's share of the priority.
        let all_localities: u64 = localities.iter().map(|locality| u64::from(locality.weight)).sum();
        let weighted = localities.iter().flat_map(|locality| {
            let share = normalized(locality.weight, all_localities);
            let all: u64 = locality.endpoints.iter().map(|endpoint| u64::from(endpoint.weight)).sum();
            let of_endpoint = move |e: &LbEndpoint| product(share, normalized(e.weight, all));
            locality.endpoints.iter().map(move |e| (e, of_endpoint(e), &locality.locality))
        });
        let last = self.priorities.get(priority).map(|known| &known.endpoints);
        let (known, mut cursor) = (last.map_or(&[][..], Endpoints::list), Nearby::default());
        let list = weighted.enumerate().map(|(at, (endpoint, weight, place))| {
            let same = |known: &Arc<Endpoint>| {
                self.is_same(endpoint, weight, known)
                    && known.locality.as_ref().is_some_and(|known| known == place)
            };
            let found = cursor.find(known, at, same).and_then(|at| known.get(at).cloned());
            found.unwrap_or_else(|| Arc::new(self.convert(endpoint, weight, place)))
        });
        let list = Endpoints::List(list.collect());
        match last {
            Some(last) if *last == list => last.clone(),
            _ => list,
        }
    }

    /// Whether converting the endpoint would give the known one, in the same locality.
    fn is_same(&self, endpoint: &LbEndpoint, weight: u32, known: &Endpoint) -> bool {
        known.addresses == endpoint.addresses
            && known.weight == weight
            && known.health == endpoint.health
            && known.extras.as_ref() == self.extras(endpoint).as_deref()
            && known.security == self.settings.security.of(endpoint.hostname())
    }

    fn convert(&self, endpoint: &LbEndpoint, weight: u32, locality: &Arc<Locality>) -> Endpoint {
        Endpoint {
            addresses: Arc::clone(&endpoint.addresses),
            weight,
            health: endpoint.health,
            locality: Some(Arc::clone(locality)),
            security: self.settings.security.of(endpoint.hostname()),
            extras: self.extras(endpoint).map(Cow::into_owned),
        }
    }

    /// The extras of an endpoint. A86-12, A86-13: with its proxy, if the cluster enables proxies.
    fn extras<'e>(&self, endpoint: &'e LbEndpoint) -> Option<Cow<'e, Arc<EndpointExtras>>> {
        let extras = endpoint.extras.as_ref()?;
        if extras.proxy.is_none() || self.settings.http_connect {
            return Some(Cow::Borrowed(extras));
        }
        EndpointExtras { proxy: None, ..(**extras).clone() }.shared().map(Cow::Owned)
    }
}

/// A113-03: a fraction of one is a fixed-point number with 31 bits behind the point.
const ONE: u64 = 1 << 31;

/// The fraction of a sum.
fn normalized(weight: u32, sum: u64) -> u64 {
    (u64::from(weight) * ONE).checked_div(sum).unwrap_or(0)
}

/// The product of two fractions, as a weight; never 0.
fn product(a: u64, b: u64) -> u32 {
    u32::try_from((a * b / ONE).max(1)).unwrap_or(u32::MAX)
}

/// A unique name of a locality.
fn unique_name(Locality { region, zone, sub_zone }: &Locality) -> String {
    format!("{{region={region:?}, zone={zone:?}, sub_zone={sub_zone:?}}}")
}

#[cfg(test)]
mod tests;
