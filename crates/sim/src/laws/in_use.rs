//! The configuration that a channel currently uses, and its consequences for each RPC.

use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_mesh::policies::cluster_impl::CircuitRegistry;
use proxyless_mesh::xds_config::{ClusterState, EndpointsState};
use proxyless_xds::resource::{
    Cluster, ClusterKind, ClusterLoadAssignment, HttpFilter, HttpFilterConfig, LbEndpoint, Listener,
    ListenerKind, LocalityEndpoints,
};

use crate::clients::calls::Picked;
use crate::clients::channel::SimChannel;
use crate::laws::invariants::Violation;
use crate::laws::ledger::Counted;

/// A cluster that routes name and that is not an aggregate: its pickers are known.
pub(crate) struct Leaf<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) assignment: &'a Arc<ClusterLoadAssignment>,
    listener: &'a Listener,
}

impl<'a> Leaf<'a> {
    pub(crate) fn of(channel: &'a SimChannel, name: &str) -> Option<Self> {
        let xds = channel.core.xds_config()?;
        let config = xds.clusters.get(name)?.as_ref().ok()?;
        match &config.state {
            ClusterState::Leaf { cluster, endpoints: EndpointsState::Known(assignment), .. } => {
                Some(Self { cluster, assignment, listener: &xds.listener })
            }
            _ => None,
        }
    }

    /// The endpoint with this address, and its locality.
    pub(crate) fn endpoint(&self, address: SocketAddr) -> Option<(&'a LocalityEndpoints, &'a LbEndpoint)> {
        let localities = self.assignment.priorities.iter().flatten();
        let mut endpoints = localities
            .flat_map(|locality| locality.endpoints.iter().map(move |endpoint| (locality, endpoint)));
        endpoints.find(|(_, endpoint)| endpoint.addresses.contains(&address))
    }

    /// The number of RPCs in flight to it, from all channels.
    fn in_flight(&self, circuits: &CircuitRegistry, name: &str) -> u32 {
        let eds_service_name = match &self.cluster.kind {
            ClusterKind::Eds { service_name } => service_name.as_deref(),
            _ => None,
        };
        circuits.in_flight(name, eds_service_name)
    }

    /// Whether sessions may use this address.
    pub(crate) fn serves_sessions(&self, address: SocketAddr) -> bool {
        let ListenerKind::Api(manager) = &self.listener.kind else { return false };
        let knows_sessions =
            |filter: &HttpFilter| matches!(filter.config, HttpFilterConfig::StatefulSession(_));
        let endpoint = self.endpoint(address);
        manager.filters.iter().any(knows_sessions)
            && endpoint
                .is_some_and(|(_, endpoint)| self.cluster.override_host_status.contains(endpoint.health))
    }
}

/// A37-51, A27-47: load is counted exactly where the cluster requests it, once per call.
pub(crate) fn check_counted(
    channel: &SimChannel,
    cluster: &str,
    picked: &Picked,
    counted: &[Counted],
) -> Result<(), Violation> {
    let leaf = Leaf::of(channel, cluster);
    let reported = leaf.as_ref().map(|leaf| leaf.cluster.lrs_server.is_some());
    let fine = match (picked, counted) {
        (Picked::Started { .. } | Picked::Dropped(_), []) => reported != Some(true),
        (Picked::Started { flight, .. }, [Counted::Issued(place)]) => {
            let locality = flight.target().endpoint.locality.as_ref();
            reported != Some(false)
                && (leaf.is_none() || place.account.0 == cluster)
                && locality.map_or("", |locality| &locality.zone) == place.zone
        }
        (Picked::Dropped(_), [Counted::Dropped(account, _, 1)]) => {
            reported != Some(false) && (leaf.is_none() || account.0 == cluster)
        }
        // A call that waits for a stream was not sent.
        (Picked::Waits | Picked::Fails(_) | Picked::Held { .. }, counted) => counted.is_empty(),
        _ => false,
    };
    Violation::unless(fine, "every call is counted once, in the right store", || {
        format!("{cluster}, reported: {reported:?}: {picked:?}, {counted:?}")
    })
}

/// A32, A37-57: the RPCs in flight to a cluster, from all channels together, never exceed its limit, and RPCs are
/// dropped only at the limit. The counter counts exactly the `running` ones.
pub(crate) fn check_circuit(
    channel: &SimChannel,
    circuits: &CircuitRegistry,
    running: usize,
    cluster: &str,
    picked: &Picked,
) -> Result<(), Violation> {
    let Some(leaf) = Leaf::of(channel, cluster) else { return Ok(()) };
    let (in_flight, max) = (leaf.in_flight(circuits, cluster), leaf.cluster.circuit_breakers.max_requests);
    let (started, fine) = match picked {
        // A32: a call that waits for a stream counts already.
        Picked::Started { .. } | Picked::Held { .. } => (1, in_flight <= max),
        Picked::Dropped(why) if why.starts_with("circuit breaker") => (0, in_flight >= max),
        Picked::Waits | Picked::Fails(_) | Picked::Dropped(_) => (0, true),
    };
    Violation::unless(fine, "the circuit breaker limits all channels together", || {
        format!("{cluster}: {in_flight} in flight, limit {max}: {picked:?}")
    })?;
    Violation::unless(
        in_flight as usize <= running + started,
        "RPCs that ended leave the circuit breaker",
        || format!("{cluster}: {in_flight} in flight, {} running", running + started),
    )
}

/// Without RPCs, none are in flight.
pub(crate) fn check_no_flights(channel: &SimChannel, circuits: &CircuitRegistry) -> Result<(), Violation> {
    let Some(config) = channel.core.xds_config() else { return Ok(()) };
    for cluster in config.clusters.keys() {
        let in_flight = Leaf::of(channel, cluster).map_or(0, |leaf| leaf.in_flight(circuits, cluster));
        Violation::unless(in_flight == 0, "RPCs that ended leave the circuit breaker", || {
            format!("{cluster}: {in_flight} in flight, none running")
        })?;
    }
    Ok(())
}

/// An RPC goes to an endpoint of the configuration in use, with the attributes given there; to a DRAINING one only by
/// its session.
pub(crate) fn check_target(
    channel: &SimChannel,
    cluster: &str,
    has_session: bool,
    picked: &Picked,
) -> Result<(), Violation> {
    let (target, address) = match picked {
        Picked::Started { flight, address, .. } => (flight.target(), address),
        Picked::Held { pick, address, .. } => (&*pick.target, address),
        Picked::Waits | Picked::Fails(_) | Picked::Dropped(_) => return Ok(()),
    };
    let Some(leaf) = Leaf::of(channel, cluster) else { return Ok(()) };
    let Some((locality, endpoint)) = leaf.endpoint(*address) else {
        return Err(Violation::new(
            "RPCs go to endpoints of the configuration in use",
            format!("{cluster}: {address}"),
        ));
    };
    let draining = endpoint.health == proxyless_xds::resource::EndpointHealth::Draining;
    // A75-20
    let fine = !draining || (has_session && leaf.serves_sessions(*address));
    Violation::unless(fine, "only sessions use draining endpoints", || format!("{cluster}: {address}"))?;
    let zone = target.endpoint.locality.as_ref().map_or("", |locality| &locality.zone);
    Violation::unless(
        zone == locality.locality.zone,
        "calls count for the locality of their endpoint",
        || format!("{cluster}: {address} is in {:?}, not in {zone:?}", locality.locality.zone),
    )
}
