//! The cds policy: turns the cluster of an update into the configuration and the endpoints of its child.

use std::sync::{Arc, LazyLock};

use proxyless_balancer::api::{
    Below, ConfigError, ConnectivityState, Cx, Endpoints, FailPicker, Layer, PickError, PolicyConfig,
    PolicyView, QueuePicker, Update, config_of,
};
use proxyless_balancer::policies::outlier_detection::OutlierDetectionConfig;
use proxyless_balancer::policies::priority::{Labels, PriorityChild, PriorityConfig};
use proxyless_sans_io::Time;
use proxyless_xds::resource::{
    Cluster, ClusterKind, ClusterLoadAssignment, DropCategory, EjectionSettings, LbPolicy, LrsServer,
};

use super::config::{CdsConfig, NAME};
use super::priority_names::PriorityNames;
use crate::dependency_manager::join_notes;
use crate::endpoints::{EndpointSettings, EndpointTable};
use crate::policies::cluster_impl::{ClusterImplConfig, LoadReporting};
use crate::policies::lb_policy;
use crate::policies::override_host::OverrideHostConfig;
use crate::targets;
use crate::xds_config::{ClusterConfig, ClusterSlice, ClusterState, EndpointsState};

/// The policy.
#[derive(Default)]
pub(super) struct Cds {
    names: PriorityNames,
    endpoints: EndpointTable,
    /// The last leaf that the child was updated with, to skip unchanged ones.
    leaf: Option<Leaf>,
}

#[derive(PartialEq)]
struct Leaf {
    config: CdsConfig,
    state: ByPointer<ClusterConfig>,
    cluster: ByPointer<Cluster>,
    note: Option<Arc<str>>,
}

struct ByPointer<T>(Arc<T>);

impl<T> PartialEq for ByPointer<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Leaf {
    fn cluster(&self) -> &Cluster {
        &self.cluster.0
    }
}

impl Layer for Cds {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &CdsConfig = config_of(NAME, &update.config)?;
        let slice = update.shared.as_ref().and_then(|shared| shared.downcast_ref::<ClusterSlice>());
        let entry = slice.and_then(|slice| slice.get(&config.cluster));
        tracing::trace!(target: targets::CDS_LB, cluster = %config.cluster, known = entry.is_some(), "update");
        let state = match entry {
            Some(Ok(state)) => state,
            // A37-20, A74: a cluster without data fails its RPCs with the reason.
            Some(Err(error)) => {
                self.fail(error, below, cx);
                return Ok(());
            }
            None => {
                let reason = format!("the configuration has no cluster {}", config.cluster);
                self.fail(&reason, below, cx);
                return Err(ConfigError { policy: NAME, reason });
            }
        };
        match &state.state {
            ClusterState::Pending => {
                // Not answered yet: RPCs are queued, or use the previous configuration.
                if !below.exists() {
                    cx.publish(ConnectivityState::Connecting, QueuePicker::new());
                }
                Ok(())
            }
            ClusterState::Leaf { cluster, endpoints, resolution_note } => {
                let leaf = Leaf {
                    config: config.clone(),
                    state: ByPointer(Arc::clone(state)),
                    cluster: ByPointer(Arc::clone(cluster)),
                    note: join_notes(update.resolution_note.iter().chain(resolution_note)),
                };
                self.update_leaf(leaf, endpoints, below, cx)
            }
            ClusterState::Aggregate { cluster, leaf_clusters, resolution_note } => {
                self.reset();
                let update = Update {
                    config: aggregate_config(config, cluster, leaf_clusters),
                    endpoints: Endpoints::none(),
                    resolution_note: join_notes(update.resolution_note.iter().chain(resolution_note)),
                    place: update.place,
                    shared: update.shared.clone(),
                };
                below.update(&update, self, cx)
            }
        }
    }

    fn describe(&self, _: Time, node: &mut PolicyView) {
        node.resolution_note = self.leaf.as_ref().and_then(|leaf| leaf.note.as_deref()).map(str::to_owned);
    }
}

impl Cds {
    fn update_leaf(
        &mut self,
        leaf: Leaf,
        endpoints: &EndpointsState,
        below: &mut Below,
        cx: &mut dyn Cx,
    ) -> Result<(), ConfigError> {
        if below.exists() && self.leaf.as_ref() == Some(&leaf) {
            return Ok(());
        }
        let (priorities, drops) = priorities_and_drops(endpoints);
        // A75-10: each leaf uses its own policy, unless the gate passes down the aggregate's.
        let policy = leaf.config.lb_policy.as_deref().or(leaf.cluster().lb_policy.as_ref());
        // A validated leaf always has a policy; the default is that of the proto field, ROUND_ROBIN.
        let default_policy = LbPolicy::WrrLocality(Box::new(LbPolicy::RoundRobin));
        let policy = policy.unwrap_or(&default_policy);
        let policy_config = match lb_policy::policy_config(policy) {
            Ok(config) => config,
            Err(error) => {
                if !below.exists() {
                    self.fail(&error.to_string(), below, cx);
                }
                return Err(error);
            }
        };
        let shared = &leaf.config.settings.names;
        let names = self.names.update(&priorities.priorities, shared);
        // A29-09: each leaf has its own TLS settings.
        let security = leaf.config.settings.security.of_cluster(leaf.cluster().tls.as_ref());
        // A86-07: proxies do not depend on the channel's credentials.
        let http_connect = leaf.cluster().http_connect;
        let settings = EndpointSettings { security: &security, http_connect, names: shared };
        let update = Update {
            config: leaf_tree(&leaf, drops, &names, &policy_config),
            endpoints: self.endpoints.update(priorities, &names, lb_policy::grouping(policy), settings),
            resolution_note: leaf.note.clone(),
            // A89: the backend service is the leaf cluster.
            place: cx.meter().place(&leaf.config.cluster, None),
            // No policy below needs it, and it changes with every other cluster.
            shared: None,
        };
        self.leaf = Some(leaf);
        below.update(&update, self, cx)
    }

    fn fail(&mut self, reason: &str, below: &mut Below, cx: &mut dyn Cx) {
        self.reset();
        below.clear();
        cx.publish(ConnectivityState::TransientFailure, FailPicker::new(PickError::unavailable(reason)));
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// The priorities and the drops of a leaf. At least one empty priority, so that there is an xds_cluster_impl to drop RPCs
/// (A37-38).
fn priorities_and_drops(endpoints: &EndpointsState) -> (&ClusterLoadAssignment, &[DropCategory]) {
    static EMPTY: LazyLock<ClusterLoadAssignment> =
        LazyLock::new(|| ClusterLoadAssignment { priorities: vec![Vec::new()], drops: Vec::new() });
    match endpoints {
        EndpointsState::Known(assignment) if !assignment.priorities.is_empty() => {
            (assignment, &assignment.drops)
        }
        EndpointsState::Known(assignment) => (&EMPTY, &assignment.drops),
        _ => (&EMPTY, &[]),
    }
}

/// A75-03 to A75-06: outlier_detection, xds_cluster_impl, xds_override_host, then priority, in this order. `policy` is
/// the configuration of the policy within each priority.
fn leaf_tree(
    leaf: &Leaf,
    drops: &[DropCategory],
    priorities: &[Arc<str>],
    policy: &Arc<dyn PolicyConfig>,
) -> Arc<dyn PolicyConfig> {
    let (cluster, settings) = (leaf.cluster(), &leaf.config.settings);
    Arc::new(OutlierDetectionConfig {
        detection: outlier_detection(cluster),
        child: Arc::new(ClusterImplConfig {
            cluster: Arc::clone(&leaf.config.cluster),
            eds_service_name: match &cluster.kind {
                ClusterKind::Eds { service_name } => service_name.clone(),
                _ => None,
            },
            max_requests: cluster.circuit_breakers.max_requests,
            max_connections_per_subchannel: cluster.circuit_breakers.max_connections_per_host,
            drops: drops.to_vec(),
            circuits: settings.circuits.clone(),
            // A37-07: each leaf's own `lrs_server` applies, not that of an aggregate above it. A27-48, A27-49: it can
            // only be the server that the cluster came from.
            load_reporting: cluster.lrs_server.map(|LrsServer::SelfServer| LoadReporting {
                registry: settings.loads.clone(),
                metrics: cluster.lrs_report_endpoint_metrics.clone(),
            }),
            child: Arc::new(OverrideHostConfig {
                override_host_status: cluster.override_host_status,
                idle_timeout: cluster.idle_timeout,
                sessions: settings.sessions,
                child: Arc::new(priority_config(leaf, priorities, policy)),
            }),
        }),
    })
}

/// A50: a cluster without the field has the policy too, without effect.
fn outlier_detection(cluster: &Cluster) -> Arc<EjectionSettings> {
    static DISABLED: LazyLock<Arc<EjectionSettings>> = LazyLock::new(Arc::default);
    Arc::clone(cluster.outlier_detection.as_ref().unwrap_or(&DISABLED))
}

fn priority_config(leaf: &Leaf, names: &[Arc<str>], child: &Arc<dyn PolicyConfig>) -> PriorityConfig {
    // A37-59, A37-60, A37-61: only DNS leaves can be re-resolved.
    let ignore_reresolution_requests = !matches!(leaf.cluster().kind, ClusterKind::LogicalDns { .. });
    let children = names.iter().map(|name| {
        (Arc::clone(name), PriorityChild { config: Arc::clone(child), ignore_reresolution_requests })
    });
    PriorityConfig {
        failover_timeout: leaf.config.settings.failover_timeout,
        cluster: Arc::clone(&leaf.config.cluster),
        labels: Labels::Places,
        ..PriorityConfig::new(children)
    }
}

/// A75-01, A75-02, A75-07: a priority policy with one cds per leaf, in order.
fn aggregate_config(config: &CdsConfig, cluster: &Cluster, leaves: &[Arc<str>]) -> Arc<dyn PolicyConfig> {
    let settings = &config.settings;
    // A75-14: if the gate is open, the aggregate's policy applies to all leaves. A75-11: otherwise it is ignored.
    let lb_policy = cluster.lb_policy.clone().filter(|_| settings.aggregate_backward_compat).map(Arc::new);
    let child = |leaf: &Arc<str>| {
        let (cluster, lb_policy, settings) = (Arc::clone(leaf), lb_policy.clone(), Arc::clone(settings));
        let config = Arc::new(CdsConfig { cluster, lb_policy, settings });
        // The priorities inside a leaf suppress re-resolution requests by the leaf's kind.
        (Arc::clone(leaf), PriorityChild { config, ignore_reresolution_requests: false })
    };
    Arc::new(PriorityConfig {
        failover_timeout: settings.failover_timeout,
        cluster: Arc::clone(&config.cluster),
        labels: Labels::Names,
        ..PriorityConfig::new(leaves.iter().map(child))
    })
}
