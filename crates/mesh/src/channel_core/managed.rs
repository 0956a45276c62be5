//! The configuration of the policy tree's clusters, rebuilt only where something changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_balancer::api::PolicyConfig;

use super::cluster_claims::ClusterClaims;
use crate::policies::cds::{CdsConfig, CdsSettings};
use crate::policies::cluster_manager::{ClusterManagerConfig, ManagedCluster};
use crate::xds_config::{ClusterSlice, XdsConfig};

/// The clusters of the policy tree, as of its last update.
#[derive(Default)]
pub(super) struct ManagedClusters {
    config: Arc<ClusterManagerConfig>,
    settings: Option<Arc<CdsSettings>>,
    /// The revision of the claims.
    claims: u64,
    /// The clusters whose slices are out of date.
    stale: BTreeSet<Arc<str>>,
}

impl ManagedClusters {
    /// The configuration for the tree's update.
    pub(super) fn config(&self) -> Arc<dyn PolicyConfig> {
        Arc::clone(&self.config) as Arc<dyn PolicyConfig>
    }

    /// Marks the clusters that differ in the next configuration.
    pub(super) fn forget(&mut self, changed: &BTreeSet<Arc<str>>) {
        self.stale.extend(changed.iter().cloned());
    }

    /// Sets the clusters, by ascending id. Those that are not stale keep their slice's allocation.
    pub(super) fn update(&mut self, claims: &ClusterClaims, xds: &XdsConfig, settings: &Arc<CdsSettings>) {
        let same_settings = self.settings.as_ref().is_some_and(|last| Arc::ptr_eq(last, settings));
        if same_settings && self.claims == claims.revision() {
            return self.renew(claims, xds);
        }
        let stale = std::mem::take(&mut self.stale);
        let last = Arc::clone(&self.config);
        let mut last = last.clusters.iter().peekable();
        let managed = claims.iter().map(|(id, name)| {
            while last.next_if(|last| last.id < id).is_some() {}
            let last = last.next_if(|last| last.id == id && last.name == *name);
            let config = last.filter(|_| same_settings).map(|last| Arc::clone(&last.config));
            let slice = last.filter(|_| !stale.contains(name)).and_then(|last| last.slice.clone());
            ManagedCluster {
                id,
                name: Arc::clone(name),
                config: config.unwrap_or_else(|| {
                    let (cluster, settings) = (Arc::clone(name), Arc::clone(settings));
                    Arc::new(CdsConfig { cluster, lb_policy: None, settings })
                }),
                slice: Some(slice.unwrap_or_else(|| Arc::new(ClusterSlice::new(xds, name)))),
            }
        });
        self.config = Arc::new(ClusterManagerConfig { clusters: managed.collect() });
        self.settings = Some(Arc::clone(settings));
        self.claims = claims.revision();
    }

    /// Renews the slices that are stale, of the same clusters as before.
    fn renew(&mut self, claims: &ClusterClaims, xds: &XdsConfig) {
        let stale = std::mem::take(&mut self.stale);
        let mut clusters = self.config.clusters.clone();
        for id in stale.iter().filter_map(|name| claims.id(name)) {
            if let Ok(at) = clusters.binary_search_by(|cluster| cluster.id.cmp(&id))
                && let Some(last) = clusters.get(at)
            {
                let slice = Some(Arc::new(ClusterSlice::new(xds, &last.name)));
                let renewed = ManagedCluster { slice, ..last.clone() };
                clusters.set(at, renewed);
            }
        }
        self.config = Arc::new(ClusterManagerConfig { clusters });
    }
}

#[cfg(test)]
mod tests {
    use proxyless_balancer::testing::NoWake;

    use super::*;
    use crate::policies::fixtures::{aggregate, eds_cluster, leaf, settings, xds_config};
    use crate::xds_config::EndpointsState;

    #[test]
    fn only_the_slices_of_changed_clusters_are_rebuilt() {
        let names: Vec<Arc<str>> = ["above", "beside", "below"].map(Arc::from).into();
        let cluster = |name: &str| leaf(name, eds_cluster(), EndpointsState::Missing);
        let old = xds_config([aggregate("above", &["below"]), cluster("beside"), cluster("below")]);
        let settings = Arc::new(settings());
        let mut managed = ManagedClusters::default();
        let mut claims = ClusterClaims::new(Arc::new(NoWake));
        let held: Vec<_> = names.iter().map(|name| claims.claim(name, |_| ())).collect();
        managed.update(&claims, &old, &settings);
        let before = managed.config.clusters.clone();

        let mut new = XdsConfig::clone(&old);
        new.clusters.renew_leaf("below", Ok(cluster("below")));
        managed.forget(&new.changed_since(&old));
        managed.update(&claims, &new, &settings);
        let same: Vec<bool> = before
            .iter()
            .zip(managed.config.clusters.iter())
            .map(|(before, after)| {
                assert!(Arc::ptr_eq(&before.config, &after.config));
                Arc::ptr_eq(before.slice.as_ref().unwrap(), after.slice.as_ref().unwrap())
            })
            .collect();
        assert_eq!(same, [false, true, false], "the leaf and the aggregate above it");
        drop(held);
    }
}
