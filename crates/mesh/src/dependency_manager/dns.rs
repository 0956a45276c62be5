//! The addresses of LOGICAL_DNS clusters, in the form of an EDS resource (A37-26).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_xds::resource::{
    ClusterLoadAssignment, EndpointExtras, EndpointHealth, LbEndpoint, Locality, LocalityEndpoints,
};

use super::resources::ResourceResult;

/// The name that a LOGICAL_DNS cluster resolves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DnsName {
    /// The host: a name or an address literal.
    pub host: Arc<str>,
    /// The port of every address.
    pub port: u16,
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') && !self.host.starts_with('[') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// All names being resolved.
#[derive(Debug, Default)]
pub(super) struct DnsNames(BTreeMap<DnsName, Resolved>);

#[derive(Debug, Default)]
struct Resolved {
    /// `None` until the first result.
    result: Option<ResourceResult<Arc<ClusterLoadAssignment>>>,
    /// The error of the latest attempt.
    note: Option<Arc<str>>,
}

impl DnsNames {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &DnsName> {
        self.0.keys()
    }

    /// Adds a name; returns true if it is new.
    pub(super) fn start(&mut self, name: &DnsName) -> bool {
        if self.0.contains_key(name) {
            return false;
        }
        self.0.insert(name.clone(), Resolved::default());
        true
    }

    pub(super) fn stop(&mut self, name: &DnsName) {
        self.0.remove(name);
    }

    /// The result for a name, and its latest error.
    pub(super) fn state(
        &self,
        name: &DnsName,
    ) -> (Option<&ResourceResult<Arc<ClusterLoadAssignment>>>, Option<&Arc<str>>) {
        self.0.get(name).map_or((None, None), |resolved| (resolved.result.as_ref(), resolved.note.as_ref()))
    }

    /// Handles a result; returns true if anything changed.
    pub(super) fn on_result(&mut self, name: &DnsName, result: Result<Vec<SocketAddr>, String>) -> bool {
        let Some(resolved) = self.0.get_mut(name) else { return false };
        let result = match result {
            Ok(addresses) if addresses.is_empty() => Err("no addresses found".to_owned()),
            other => other,
        };
        match result {
            Ok(addresses) => {
                // Servers rotate their answers: a different order of the same addresses is not a change.
                let same =
                    matches!(&resolved.result, Some(Ok(old)) if set(addresses_of(old)) == set(&addresses));
                if !same {
                    resolved.result = Some(Ok(Arc::new(assignment(name, addresses))));
                }
                resolved.note.take().is_some() || !same
            }
            Err(why) => {
                let why: Arc<str> = format!("DNS resolution of {name} failed: {why}").into();
                match &resolved.result {
                    // A37-39: earlier addresses stay in use.
                    Some(Ok(_)) => resolved.note.replace(Arc::clone(&why)) != Some(why),
                    // A37-37: nothing was resolved before.
                    _ => resolved.result.replace(Err(Arc::clone(&why))) != Some(Err(why)),
                }
            }
        }
    }
}

fn addresses_of(assignment: &ClusterLoadAssignment) -> impl Iterator<Item = &SocketAddr> {
    let localities = assignment.priorities.iter().flatten();
    localities.flat_map(|locality| &locality.endpoints).flat_map(|endpoint| &*endpoint.addresses)
}

fn set<'a>(addresses: impl IntoIterator<Item = &'a SocketAddr>) -> BTreeSet<&'a SocketAddr> {
    addresses.into_iter().collect()
}

/// A37-31, A37-32, A61: one priority, one unnamed locality, one endpoint with every address.
fn assignment(name: &DnsName, addresses: Vec<SocketAddr>) -> ClusterLoadAssignment {
    let endpoint = LbEndpoint {
        addresses: addresses.into(),
        weight: 1,
        health: EndpointHealth::Unknown,
        extras: EndpointExtras::named(name.to_string()),
    };
    let locality =
        LocalityEndpoints { locality: Arc::new(Locality::default()), weight: 1, endpoints: vec![endpoint] };
    ClusterLoadAssignment { priorities: vec![vec![locality]], drops: Vec::new() }
}
