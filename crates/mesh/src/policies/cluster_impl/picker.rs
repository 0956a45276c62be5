//! The picker of xds_cluster_impl: drops RPCs and limits those in flight, then asks the child's picker
//! and rewrites the authority.

use std::sync::{Arc, OnceLock};

use proxyless_balancer::api::{PickArgs, PickError, PickPurpose, PickResult, Picker};
use proxyless_sans_io::metrics::PlaceId;
use proxyless_xds::lrs::{DropCounter, LoadStore};
use proxyless_xds::resource::{CircuitBreakers, MILLION};

use super::authority::Authorities;
use super::circuit::Circuit;
use super::config::ClusterImplConfig;

/// The rules that the picker applies in addition to the child's, built once per configuration.
pub(super) struct Rules {
    drops: Box<[Drop]>,
    circuit: Circuit,
    max_requests: u32,
    cluster: Arc<str>,
    /// The error of refused RPCs, from the first one on.
    too_many: OnceLock<Arc<PickError>>,
    /// The store that counts drops, if load is reported.
    load: Option<Arc<LoadStore>>,
    /// The cluster, for metrics.
    place: PlaceId,
}

struct Drop {
    per_million: u32,
    error: Arc<PickError>,
    counter: Option<Arc<DropCounter>>,
}

impl Rules {
    pub(super) fn new(
        config: &ClusterImplConfig,
        circuit: Circuit,
        load: Option<Arc<LoadStore>>,
        place: PlaceId,
    ) -> Self {
        let ClusterImplConfig { cluster, max_requests, .. } = config;
        let drops = config.drops.iter().map(|drop| {
            let message = format!("drop: category {:?} of cluster {cluster}", drop.category);
            Drop {
                per_million: drop.per_million,
                error: PickError::unavailable(message),
                counter: load.as_ref().map(|load| load.category(&drop.category)),
            }
        });
        let (drops, cluster, max_requests) = (drops.collect(), Arc::clone(cluster), *max_requests);
        Self { drops, circuit, max_requests, cluster, too_many: OnceLock::new(), load, place }
    }

    /// The error of RPCs beyond the limit.
    #[cold]
    fn too_many(&self) -> Arc<PickError> {
        let error = self.too_many.get_or_init(|| {
            let Self { cluster, max_requests, .. } = self;
            // A32: there is a limit even if none is configured.
            let whose = match *max_requests == CircuitBreakers::default().max_requests {
                true => " (the default where the Cluster sets none)",
                false => "",
            };
            PickError::unavailable(format!(
                "circuit breaker: max_requests {max_requests} of cluster {cluster} reached{whose}"
            ))
        });
        Arc::clone(error)
    }

    /// The number of RPCs in flight to the cluster, from all channels of the process.
    pub(super) fn in_flight(&self) -> u32 {
        self.circuit.in_flight()
    }

    /// Whether all RPCs are dropped.
    pub(super) fn drop_all(&self) -> bool {
        self.drops.iter().any(|drop| drop.per_million >= MILLION)
    }
}

/// Drops by category, calls the child, limits, rewrites.
pub(super) struct ClusterImplPicker {
    pub(super) rules: Arc<Rules>,
    pub(super) authorities: Arc<Authorities>,
    pub(super) child: Arc<dyn Picker>,
}

impl Picker for ClusterImplPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        let rules = &*self.rules;
        // A89: whatever the result of the pick is.
        args.attributes.place = rules.place;
        // A27-106, A37-49: each category is drawn independently; drops come first, even if the child is not READY.
        for drop in &rules.drops {
            if args.rng.below(u64::from(MILLION)) < u64::from(drop.per_million) {
                if let Some(counter) = &drop.counter
                    && args.attributes.purpose == PickPurpose::Call
                {
                    counter.dropped();
                }
                return PickResult::Drop(Arc::clone(&drop.error));
            }
        }
        let mut pick = match self.child.pick(args) {
            PickResult::Complete(pick) => pick,
            // A32: RPCs that are queued or fail are not in flight, so they take no place, not even during the pick.
            other => return other,
        };
        if args.attributes.purpose == PickPurpose::Explanation {
            return match rules.in_flight() < rules.max_requests {
                true => PickResult::Complete(pick),
                false => PickResult::Drop(rules.too_many()),
            };
        }
        // beyond the limit the RPC fails and is not retried; it is a drop without a category.
        let Some(permit) = rules.circuit.enter(rules.max_requests) else {
            if let Some(load) = &rules.load {
                load.uncategorized().dropped();
            }
            return PickResult::Drop(rules.too_many());
        };
        pick.permit = Some(permit);
        args.attributes.place = pick.target.place;
        // A81: the endpoint's host name replaces the channel's authority if the route says so.
        if args.attributes.auto_host_rewrite {
            pick.authority = self.authorities.of(pick.target.address).cloned();
        }
        PickResult::Complete(pick)
    }
}
