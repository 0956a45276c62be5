//! The evaluation of a snapshot for an RPC: its route, and a connection for one attempt.

use std::sync::Arc;

use proxyless_balancer::api::{ActualHost, CallAttributes, HostWait, Pick, PickArgs, PickResult};
use proxyless_mesh::cluster_ref::ClusterRef;
use proxyless_xds::resource::RetryPolicy;
use tonic::Status;

use super::attempt::Call;
use super::options::WaitForReady;
use super::settings::PolicyRetries;
use super::status;
use crate::clock;
use crate::drive::connection::DataConnection;
use crate::filters::Session;
use crate::snapshot::Snapshot;

/// The result of routing, kept for all attempts.
pub(super) struct Routed {
    /// The driver whose number of the cluster this is.
    driver: u64,
    /// Keeps the cluster configured until the RPC is committed (gRFC A31).
    pub(super) cluster: Arc<ClusterRef>,
    pub(super) retry_policy: Option<Arc<RetryPolicy>>,
    pub(super) attributes: CallAttributes,
    /// Present if the route has sessions for the RPC (gRFC A55).
    pub(super) session: Option<Session>,
}

/// A connection for one attempt.
pub(super) struct Picked {
    pub(super) connection: Arc<DataConnection>,
    pub(super) pick: Pick,
    /// The endpoint, for the session's cookie.
    pub(super) actual: Option<ActualHost>,
}

/// The result of evaluating a snapshot.
pub(super) enum Step<T> {
    Done(T),
    /// No result in this generation.
    Wait,
}

impl Call<'_> {
    fn waits_for_ready(&self) -> bool {
        self.head.extensions.get::<WaitForReady>().is_some()
    }

    pub(super) fn route(&mut self, snapshot: &Snapshot) -> Result<Step<Routed>, Status> {
        let Some(data) = &snapshot.data else { return Ok(Step::Wait) };
        let routes = match &data.routes {
            Ok(routes) => routes,
            Err(error) if self.waits_for_ready() => {
                self.pick_error = Some(error.message.clone());
                return Ok(Step::Wait);
            }
            Err(error) => return Err(status::of_pick(error)),
        };
        let headers = &self.head.headers;
        let selection = routes
            .select(self.head.uri.path(), headers, &mut self.rng)
            .map_err(|error| Status::unavailable(error.to_string()))?;
        // A31: the route's limit, or else the listener's, shortens the caller's deadline.
        let limit = selection.route.max_stream_duration();
        let session = Session::begin(&selection, self.head.uri.path(), headers);
        // A60: a session may select a cluster of the route other than the one chosen by weight.
        let cluster = session.as_ref().map_or(selection.cluster, Session::cluster);
        let attributes = CallAttributes {
            cluster: cluster.id(),
            hash: selection.route.hash(headers, self.shared.channel_id, &mut self.rng),
            auto_host_rewrite: selection.route.auto_host_rewrite(),
            override_host: None,
        };
        let cluster = Arc::clone(cluster);
        // A44: if the application disabled retries, the route's policy is validated but not used.
        let retry_policy = match self.shared.calls.policy_retries {
            PolicyRetries::Enabled => selection.route.retry_policy().cloned(),
            PolicyRetries::Disabled => None,
        };
        self.deadline.limit(self.start, limit);
        // There are routes now: their earlier absence does not explain a wait for a connection.
        self.pick_error = None;
        Ok(Step::Done(Routed { driver: snapshot.driver, cluster, retry_policy, attributes, session }))
    }

    /// A connection, or (inside) the reason why this attempt has none, or (outside) the reason why there will be no
    /// other attempt. `waiting` is passed between the attempt's picks.
    pub(super) fn pick(
        &mut self,
        snapshot: &Snapshot,
        routed: &mut Routed,
        waiting: &mut Option<HostWait>,
    ) -> Result<Step<Result<Picked, Status>>, Status> {
        let Some(data) = &snapshot.data else { return Ok(Step::Wait) };
        // The driver that routed the call has panicked: in this snapshot the number may be that of another cluster.
        if routed.driver != snapshot.driver {
            match self.route(snapshot) {
                Ok(Step::Done(again)) => *routed = again,
                Ok(Step::Wait) => return Ok(Step::Wait),
                Err(status) => return Ok(Step::Done(Err(status))),
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
        let result = data.picker.pick(&mut args);
        let mut override_host = args.attributes.override_host;
        *waiting = override_host.as_mut().and_then(|session| session.waiting.take());
        match result {
            PickResult::Complete(pick) => {
                // The connection is lost but still in this generation's picker: the driver empties the slot and then
                // supersedes this generation, which was loaded before the slot, so the wait ends.
                let connection =
                    pick.target.slot.load().and_then(|any| any.downcast::<DataConnection>().ok());
                let open = connection.filter(|connection| connection.is_open());
                let actual = override_host.and_then(|session| session.actual);
                Ok(open.map_or(Step::Wait, |connection| Step::Done(Ok(Picked { connection, pick, actual }))))
            }
            PickResult::Queue => Ok(Step::Wait),
            PickResult::Fail(error) if self.waits_for_ready() => {
                self.pick_error = Some(error.message.clone());
                Ok(Step::Wait)
            }
            PickResult::Fail(error) => Ok(Step::Done(Err(status::of_pick(&error)))),
            // dropped RPCs are not retried.
            PickResult::Drop(error) => Err(status::of_pick(&error)),
        }
    }
}
