//! The destinations of one route, and the choice between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_sans_io::Rng;
use proxyless_xds::resource::{
    ClusterSpecifier, CookieSession, FilterOverrides, HttpFilter, VirtualHost, WeightedCluster,
};

use super::faults::{FaultFilter, fault_filters};
use super::sessions::session;
use crate::cluster_claim::{ClusterClaim, TableClaim};

/// The destinations of a route.
#[derive(Debug)]
pub(super) struct Destinations {
    split: TrafficSplit,
    /// All clusters in the route, including those of weight zero.
    all: Box<[Arc<TableClaim>]>,
}

#[derive(Debug)]
enum TrafficSplit {
    One(Destination),
    /// Each destination with its cumulative weight; without those of weight zero.
    Weighted {
        upto: Box<[(u64, Destination)]>,
        last: Destination,
        total: u64,
    },
}

/// A cluster, and the filter configs of RPCs sent there by weight.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) cluster: Arc<TableClaim>,
    pub(super) session: Option<Arc<CookieSession>>,
    pub(super) faults: Box<[FaultFilter]>,
}

impl Destination {
    /// `overrides` are ordered from the most specific.
    fn new(cluster: Arc<TableClaim>, filters: &[HttpFilter], overrides: &[&FilterOverrides]) -> Self {
        Self { cluster, session: session(filters, overrides), faults: fault_filters(filters, overrides) }
    }
}

/// The sources of filter configs other than the weighted cluster.
pub(super) struct FilterSource<'a> {
    pub(super) filters: &'a [HttpFilter],
    pub(super) route: &'a FilterOverrides,
    pub(super) virtual_host: &'a VirtualHost,
}

impl Destinations {
    /// `None` if there is no cluster to choose.
    pub(super) fn new<F: FnMut(&Arc<str>) -> Arc<ClusterClaim>>(
        from: &ClusterSpecifier,
        source: &FilterSource<'_>,
        claims: &mut Claims<F>,
    ) -> Option<Self> {
        let of_host = &source.virtual_host.filter_overrides;
        let weighted = match from {
            ClusterSpecifier::Cluster(name) => {
                let cluster = claims.claim(name);
                let all = Box::new([Arc::clone(&cluster)]);
                let destination = Destination::new(cluster, source.filters, &[source.route, of_host]);
                return Some(Self { split: TrafficSplit::One(destination), all });
            }
            ClusterSpecifier::Weighted(weighted) => weighted,
        };
        let mut total = 0;
        let (mut upto, mut all) = (Vec::new(), Vec::new());
        for WeightedCluster { name, weight, filter_overrides } in weighted {
            let cluster = claims.claim(name);
            all.push(Arc::clone(&cluster));
            if *weight > 0 {
                total += u64::from(*weight);
                let overrides = [filter_overrides, source.route, of_host];
                upto.push((total, Destination::new(cluster, source.filters, &overrides)));
            }
        }
        let (_, last) = upto.pop()?;
        let split = if upto.is_empty() {
            TrafficSplit::One(last)
        } else {
            TrafficSplit::Weighted { upto: upto.into(), last, total }
        };
        Some(Self { split, all: all.into() })
    }

    /// A31: by weight alone, whatever the states of the clusters.
    pub(super) fn choose(&self, rng: &mut Rng) -> &Destination {
        match &self.split {
            TrafficSplit::One(destination) => destination,
            TrafficSplit::Weighted { upto, last, total } => {
                let point = rng.below(*total);
                let index = upto.partition_point(|(end, _)| *end <= point);
                upto.get(index).map_or(last, |(_, destination)| destination)
            }
        }
    }

    /// A60: the cluster of this name, if the route has it.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<TableClaim>> {
        self.all.iter().find(|cluster| **cluster.name() == *name)
    }
}

/// Claims each cluster once, however many routes name it.
pub(super) struct Claims<F> {
    claim_cluster: F,
    by_name: BTreeMap<Arc<str>, Arc<TableClaim>>,
    /// In the order in which routes name them.
    clusters: Vec<Arc<TableClaim>>,
}

impl<F: FnMut(&Arc<str>) -> Arc<ClusterClaim>> Claims<F> {
    pub(super) fn new(claim_cluster: F) -> Self {
        Self { claim_cluster, by_name: BTreeMap::new(), clusters: Vec::new() }
    }

    /// All claimed clusters, in the order of the first claims.
    pub(super) fn into_clusters(self) -> Vec<Arc<TableClaim>> {
        self.clusters
    }

    fn claim(&mut self, name: &Arc<str>) -> Arc<TableClaim> {
        if let Some(known) = self.by_name.get(name) {
            return Arc::clone(known);
        }
        let cluster = Arc::new(TableClaim::new(&(self.claim_cluster)(name)));
        self.by_name.insert(Arc::clone(name), Arc::clone(&cluster));
        self.clusters.push(Arc::clone(&cluster));
        cluster
    }
}
