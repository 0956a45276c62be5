//! The configuration of the policy tree's clusters, rebuilt only where something changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_balancer::api::{ClusterId, PolicyConfig};

use crate::policies::cds::{CdsConfig, CdsSettings};
use crate::policies::cluster_manager::{ClusterManagerConfig, ManagedCluster};
use crate::xds_config::{ClusterSlice, XdsConfig};

/// The clusters of the policy tree, as of its last update.
#[derive(Default)]
pub(super) struct ManagedClusters {
    config: Arc<ClusterManagerConfig>,
    settings: Option<Arc<CdsSettings>>,
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
    pub(super) fn update<'a>(
        &mut self,
        clusters: impl Iterator<Item = (ClusterId, &'a Arc<str>)>,
        xds: &XdsConfig,
        settings: &Arc<CdsSettings>,
    ) {
        let stale = std::mem::take(&mut self.stale);
        let same_settings = self.settings.as_ref().is_some_and(|last| Arc::ptr_eq(last, settings));
        let mut last = self.config.clusters.iter().peekable();
        let managed = clusters.map(|(id, name)| {
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
    }
}

#[cfg(test)]
mod tests {
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
        managed.update((0..).map(ClusterId).zip(&names), &old, &settings);
        let before = managed.config.clusters.clone();

        let mut new = XdsConfig::clone(&old);
        new.clusters.insert("below".into(), Ok(cluster("below")));
        managed.forget(&new.changed_since(&old));
        managed.update((0..).map(ClusterId).zip(&names), &new, &settings);
        let same: Vec<bool> = before
            .iter()
            .zip(&managed.config.clusters)
            .map(|(before, after)| {
                assert!(Arc::ptr_eq(&before.config, &after.config));
                Arc::ptr_eq(before.slice.as_ref().unwrap(), after.slice.as_ref().unwrap())
            })
            .collect();
        assert_eq!(same, [false, true, false], "the leaf and the aggregate above it");
    }
}
