//! The xds_cluster_impl policy: wraps the child's picker with the cluster's rules and its subchannels with
//! the load counters of their localities.

use std::sync::Arc;

use proxyless_balancer::api::{
    Below, ChildOutput, ConfigError, ConnectionLimit, ConnectivityState, Cx, Endpoints, Layer, PolicyConfig,
    PolicyView, SubchannelHandle, SubchannelSpec, Update, config_of,
};
use proxyless_sans_io::Time;

use super::authority::Authorities;
use super::config::{ClusterImplConfig, NAME};
use super::load::ClusterLoad;
use super::picker::{ClusterImplPicker, Rules};
use super::places::Places;
use crate::targets;

/// The policy.
#[derive(Default)]
pub(super) struct ClusterImpl {
    applied: Option<Applied>,
    load: ClusterLoad,
    places: Places,
    /// `max_connections_per_subchannel` of all its subchannels, which it changes without replacing them (A105-02).
    connection_limit: ConnectionLimit,
}

struct Applied {
    /// A [`ClusterImplConfig`].
    config: Arc<dyn PolicyConfig>,
    endpoints: Endpoints,
    rules: Arc<Rules>,
    authorities: Arc<Authorities>,
}

impl Applied {
    fn picks_like(&self, new: &ClusterImplConfig) -> bool {
        config_of::<ClusterImplConfig>(NAME, &self.config).is_ok_and(|old| old.equivalent_for_picks(new))
    }
}

impl Layer for ClusterImpl {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &ClusterImplConfig = config_of(NAME, &update.config)?;
        tracing::debug!(target: targets::XDS_CLUSTER_IMPL_LB, cluster = %config.cluster,
            max_requests = config.max_requests, drop_categories = config.drops.len(), "update");
        self.load.configure(config);
        self.places.configure(&config.cluster);
        if self.connection_limit.set(config.max_connections_per_subchannel) {
            cx.connection_limits_changed();
        }
        let last = self.applied.as_ref();
        let rules = match last.filter(|last| last.picks_like(config)) {
            Some(last) => Arc::clone(&last.rules),
            None => {
                below.republish();
                // A37-55, A37-56: one counter per {cluster, EDS service name}.
                let circuit = config.circuits.circuit(&config.cluster, config.eds_service_name.as_ref());
                let place = cx.meter().place(&config.cluster, None);
                Arc::new(Rules::new(config, circuit, self.load.store().cloned(), place))
            }
        };
        let authorities = match last.filter(|last| last.endpoints.ptr_eq(&update.endpoints)) {
            Some(last) => Arc::clone(&last.authorities),
            None => {
                let last_named = last.map(|last| (&last.endpoints, &*last.authorities));
                let authorities = Authorities::after(&update.endpoints, last_named);
                match last.filter(|last| *last.authorities == authorities) {
                    Some(last) => Arc::clone(&last.authorities),
                    None => {
                        below.republish();
                        Arc::new(authorities)
                    }
                }
            }
        };
        let (applied, endpoints) = (Arc::clone(&update.config), update.endpoints.clone());
        self.applied = Some(Applied { config: applied, endpoints, rules, authorities });
        let update = Update { config: Arc::clone(&config.child), ..update.clone() };
        below.update(&update, self, cx)
    }

    fn create_subchannel(&mut self, mut spec: SubchannelSpec, cx: &mut dyn Cx) -> SubchannelHandle {
        self.load.track(&mut spec);
        spec.place = self.places.of(&spec, cx.meter());
        spec.connection_limit = Some(self.connection_limit.clone());
        cx.create_subchannel(spec)
    }

    fn publish(&mut self, output: &ChildOutput, cx: &mut dyn Cx) {
        // It is set before the child is created, so it exists whenever the child publishes.
        let Some(applied) = &self.applied else { return };
        let picker = ClusterImplPicker {
            rules: Arc::clone(&applied.rules),
            authorities: Arc::clone(&applied.authorities),
            child: Arc::clone(&output.picker),
        };
        // A cluster that drops everything serves its purpose: it does not fail over.
        let connectivity = if applied.rules.drop_all() { ConnectivityState::Ready } else { output.state };
        cx.publish(connectivity, Arc::new(picker));
    }

    fn describe(&self, _: Time, node: &mut PolicyView) {
        if let Some(applied) = &self.applied {
            node.counters.insert("requests_in_flight".to_owned(), applied.rules.in_flight().into());
        }
        node.details = self.load.describe();
    }
}
