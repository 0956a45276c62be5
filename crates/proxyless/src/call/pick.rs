//! The evaluation of a snapshot for an RPC: its route, and a connection for one attempt.

use std::sync::Arc;

use http::HeaderMap;
use proxyless_balancer::api::{
    ActualHost, CallAttributes, HostWait, LiveConnection, Pick, PickArgs, PickPurpose, PickResult,
};
use proxyless_mesh::cluster_claim::{ClusterClaim, RpcClaim};
use proxyless_mesh::route_table::{ChannelHash, Fault, RouteTable, Selection};
use proxyless_sans_io::Rng;
use proxyless_sans_io::metrics::PlaceId;
use proxyless_transport::panics::contain;
use proxyless_xds::resource::RetryPolicy;
use tonic::Status;

use super::options::WaitForReady;
use super::rpc::Call;
use super::settings::PolicyRetries;
use super::status;
use crate::clock;
use crate::drive::connection::DataConnection;
use crate::filters::Session;
use crate::snapshot::{DriverId, Snapshot};

/// The result of routing, kept for all attempts.
pub(super) struct Routed {
    /// The driver that assigned the cluster's id.
    driver: DriverId,
    /// Keeps the cluster configured until the RPC is committed (gRFC A31).
    pub(super) cluster: RpcClaim,
    pub(super) retry_policy: Option<Arc<RetryPolicy>>,
    pub(super) attributes: CallAttributes,
    /// Present if the route has sessions for the RPC (gRFC A55).
    pub(super) session: Option<Session>,
    /// The faults to inject before the first attempt; empty without an allocation (gRFC A33).
    pub(super) faults: Box<[Fault]>,
}

/// The result of a pick.
pub(super) enum Picked {
    /// An open connection.
    Connection {
        connection: Arc<DataConnection>,
        pick: Pick,
        /// The endpoint, for the session's cookie.
        actual: Option<ActualHost>,
    },
    /// The attempt has no connection; the retry policy may allow another one.
    Failed(Status),
    /// The RPC is dropped.
    Dropped(Status),
}

/// The attributes of an RPC to one of the clusters of its route, without its session.
pub(crate) fn attributes(
    selection: &Selection<'_>,
    cluster: &ClusterClaim,
    headers: &HeaderMap,
    channel: ChannelHash,
    rng: &mut Rng,
) -> CallAttributes {
    CallAttributes {
        cluster: cluster.id(),
        hash: selection.route.hash(headers, channel, rng),
        auto_host_rewrite: selection.route.auto_host_rewrite,
        override_host: None,
        purpose: PickPurpose::Call,
        place: PlaceId::default(),
    }
}

impl Call<'_> {
    fn waits_for_ready(&self) -> bool {
        self.head.extensions.get::<WaitForReady>().is_some()
    }

    /// The route of the RPC, or its error; `None` if this generation has neither.
    pub(super) fn route(&mut self, snapshot: &Snapshot) -> Option<Result<Routed, Status>> {
        match &snapshot.data.as_ref()?.routes {
            Ok(routes) => Some(self.select(routes, snapshot.driver)),
            Err(error) if self.waits_for_ready() => {
                self.pick_error = Some(error.message.clone());
                None
            }
            Err(error) => Some(Err(status::of_pick(error))),
        }
    }

    fn select(&mut self, routes: &RouteTable, driver: DriverId) -> Result<Routed, Status> {
        let headers = &self.head.headers;
        let selection = routes
            .select(self.head.uri.path(), headers, &mut self.rng)
            .map_err(|error| Status::unavailable(error.to_string()))?;
        // A31: the route's limit, or else the listener's, shortens the caller's deadline.
        let limit = selection.route.max_stream_duration;
        let session = Session::begin(&selection, self.head.uri.path(), headers);
        // A60: a session may select a cluster of the route other than the one chosen by weight.
        let cluster =
            session.as_ref().map_or_else(|| selection.cluster.hold(), |session| session.cluster().clone());
        let attributes = attributes(&selection, &cluster, headers, self.shared.hash, &mut self.rng);
        let faults =
            selection.faults.iter().filter_map(|filter| filter.decide(headers, &mut self.rng)).collect();
        // A44: if the application disabled retries, the route's policy is validated but not used.
        let retry_policy = match self.shared.calls.policy_retries {
            PolicyRetries::Enabled => selection.route.retry_policy.clone(),
            PolicyRetries::Disabled => None,
        };
        self.deadline.limit(self.start, limit);
        // There are routes now: their earlier absence does not explain a wait for a connection.
        self.pick_error = None;
        Ok(Routed { driver, cluster, retry_policy, attributes, session, faults })
    }

    /// Picks a connection for an attempt; `None` if this generation has no result. `waiting` is passed between the
    /// attempt's picks.
    pub(super) fn pick(
        &mut self,
        snapshot: &Snapshot,
        routed: &mut Routed,
        waiting: &mut Option<HostWait>,
    ) -> Option<Picked> {
        let data = snapshot.data.as_ref()?;
        // The driver that routed the call has panicked: in this snapshot the id may belong to another cluster.
        if routed.driver != snapshot.driver {
            match self.route(snapshot)? {
                Ok(again) => *routed = again,
                Err(status) => return Some(Picked::Failed(status)),
            }
            *waiting = None;
        }
        let session = routed.session.as_ref();
        let override_host = session.map(|session| session.override_host(clock::now(), waiting.take()));
        let mut args = PickArgs {
            path: self.head.uri.path(),
            headers: &self.head.headers,
            attributes: CallAttributes { override_host, ..routed.attributes.clone() },
            rng: &mut self.rng,
        };
        // A policy of the application may have made the picker: its panic fails this RPC, not the caller's task.
        let result = match contain(|| data.picker.pick(&mut args)) {
            Ok(result) => result,
            Err(panicked) => {
                let message = format!("the picker of a load balancing policy panicked: {panicked}");
                return Some(Picked::Dropped(Status::internal(message)));
            }
        };
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.picked(args.attributes.place);
        }
        let mut override_host = args.attributes.override_host;
        *waiting = override_host.as_mut().and_then(|session| session.waiting.take());
        match result {
            PickResult::Complete(pick) => {
                // The connection is lost but still in this generation's picker: the driver empties the slot and then
                // supersedes this generation, which was loaded before the slot, so the wait ends.
                let connection = pick.target.slot.read(choose)?;
                let actual = override_host.and_then(|session| session.actual);
                Some(Picked::Connection { connection, pick, actual })
            }
            PickResult::Queue => None,
            PickResult::Fail(error) if self.waits_for_ready() => {
                self.pick_error = Some(error.message.clone());
                None
            }
            PickResult::Fail(error) => {
                // The last snapshot of a channel may show what the end of its runtime did to its connections.
                let ended = self.shared.check_ended().err();
                Some(Picked::Failed(ended.unwrap_or_else(|| status::of_pick(&error))))
            }
            PickResult::Drop(error) => Some(Picked::Dropped(status::of_pick(&error))),
        }
    }
}

/// The open connection of a subchannel whose stream an RPC should take, or wait for. A105-20: the oldest one with a free
/// stream; if there is none, any will do, since they have one queue.
fn choose(oldest: &LiveConnection, newer: &[LiveConnection]) -> Option<Arc<DataConnection>> {
    let is_open = |live: &DataConnection| live.is_open();
    // Usually there is one.
    let chosen = if newer.is_empty() {
        oldest
    } else {
        let all = || [oldest].into_iter().chain(newer);
        let is = |live: &LiveConnection, suits: fn(&DataConnection) -> bool| {
            live.downcast_ref::<DataConnection>().is_some_and(|live| is_open(live) && suits(live))
        };
        let free = all().find(|live| is(live, DataConnection::has_room));
        free.or_else(|| all().find(|live| is(live, |_| true)))?
    };
    Arc::clone(chosen).downcast().ok().filter(|live| is_open(live))
}
