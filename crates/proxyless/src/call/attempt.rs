//! Routes an RPC, picks a connection for it, sends it, and sends again what no server has seen or the route retries.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, request};
use proxyless_balancer::api::{ActualHost, CallAttributes, CallTicket, Code, Pick, PickArgs, PickResult};
use proxyless_mesh::cluster_ref::ClusterRef;
use proxyless_sans_io::Rng;
use proxyless_transport::{SendError, grpc};
use proxyless_xds::resource::RetryPolicy;
use tokio::time::Instant;
use tonic::Status;

use super::answer::{self, Answer};
use super::deadline::Deadline;
use super::options::WaitForReady;
use super::orca;
use super::peer::PeerAddress;
use super::replay::{Replay, RequestBody};
use super::request as requests;
use super::response::XdsBody;
use super::retry::Retries;
use super::settings::PolicyRetries;
use super::status;
use super::timer::Timer;
use super::transparent::Transparent;
use super::waiting::Waiting;
use crate::channel::Shared;
use crate::clock;
use crate::drive::connection::DataConnection;
use crate::filters::Session;
use crate::snapshot::Snapshot;

/// Runs one RPC up to its response headers. Failures are trailers-only responses, as if a server had sent them.
pub(crate) fn call(
    shared: Arc<Shared>,
    request: Request<tonic::body::Body>,
) -> impl Future<Output = Result<Response<XdsBody>, Infallible>> + Send {
    let (mut head, body) = request.into_parts();
    // The head is lent: an async function holds each of its arguments twice.
    async move {
        let mut call = Call::new(&shared, &mut head);
        let answered = call.run(body).await;
        Ok(answered.unwrap_or_else(|status| {
            let mut response = status.into_http();
            if let Some(peer) = call.peer {
                response.extensions_mut().insert(PeerAddress::new(peer));
            }
            response
        }))
    }
}

/// An RPC that has not been answered yet.
struct Call<'a> {
    shared: &'a Shared,
    head: &'a mut request::Parts,
    start: Instant,
    deadline: Deadline,
    rng: Rng,
    /// The backend of the attempt that runs.
    peer: Option<SocketAddr>,
    /// Why the last attempt failed, or why a call that waits for a connection has none.
    last_error: Option<String>,
}

/// What the route decided, kept over all attempts.
struct Routed {
    cluster: Arc<ClusterRef>,
    retry_policy: Option<Arc<RetryPolicy>>,
    attributes: CallAttributes,
    /// Present where the route keeps sessions for the RPC (gRFC A55).
    session: Option<Session>,
}

/// A connection for one attempt.
struct Picked {
    connection: Arc<DataConnection>,
    pick: Pick,
    /// The endpoint, for the session's cookie.
    actual: Option<ActualHost>,
}

/// What one look at a snapshot gave.
enum Step<T> {
    Done(T),
    /// Nothing to be had in this generation.
    Wait,
}

impl<'a> Call<'a> {
    fn new(shared: &'a Shared, head: &'a mut request::Parts) -> Self {
        let start = Instant::now();
        let deadline = Deadline::of_request(&head.headers, start);
        Self { shared, head, start, deadline, rng: clock::rng(), peer: None, last_error: None }
    }

    async fn run(&mut self, body: tonic::body::Body) -> Result<Response<XdsBody>, Status> {
        self.shared.exit_idle();
        let shared = self.shared;
        // Calls that come to a connection are counted by it.
        let unsent = |_: &Status| shared.published.unsent().failed();
        let routed = self.wait_for(Waiting::Route, Self::route).await.inspect_err(unsent)?;
        requests::complete(&mut self.head.headers);
        let mut replay = Replay::new(body, shared.calls.retry_buffer);
        let mut transparent = Transparent::default();
        let mut retries = Retries::new(routed.retry_policy.as_deref(), shared.calls.throttle.as_deref());
        loop {
            self.peer = None;
            let picked = self
                .wait_for(Waiting::Connection, |call, snapshot| call.pick(snapshot, &routed))
                .await
                .inspect_err(unsent)?;
            let Picked { connection, pick, actual } = match picked.inspect_err(unsent) {
                Ok(picked) => picked,
                // A44: an attempt that finds no connection has failed like any other.
                Err(status) => {
                    let delay = self.next_attempt(&mut retries, &replay, status, &HeaderMap::new())?;
                    self.pause_for_retry(delay).await.inspect_err(unsent)?;
                    continue;
                }
            };
            let peer = pick.target.address;
            self.peer = Some(peer);
            let reserved =
                self.until(pin!(connection.reserve()), Waiting::Stream { cluster: &routed.cluster }).await;
            let Ok(reserved) = reserved.inspect_err(unsent)? else {
                let pause = transparent.unsent(&mut self.rng);
                self.pause(pause).await.inspect_err(unsent)?;
                continue;
            };
            let Some(body) = replay.attempt().await else {
                let why =
                    "the connection was lost and more of the request was sent than its retry buffer holds";
                // If the caller's own body failed meanwhile, that says more.
                return Err(replay.error().unwrap_or_else(|| Status::unavailable(why))).inspect_err(unsent);
            };
            let request = self.request(body, pick.authority.as_ref(), &retries);
            // From here on the call counts.
            let ticket = CallTicket::start(pick);
            let sent = self.deadline.bound(pin!(reserved.send(request)), &shared.calls.runtime).await;
            let Some(sent) = sent else {
                ticket.finish(Code::DeadlineExceeded);
                return Err(self.expired(Waiting::Response { cluster: &routed.cluster }));
            };
            let delay = match sent {
                Ok(response) => match Answer::of(&response) {
                    Answer::Begun => {
                        replay.commit();
                        return Ok(self.respond(response, None, ticket, routed, actual.as_ref()));
                    }
                    // Trailers-only: the attempt is over, and nothing has been handed to the caller (A44).
                    Answer::Ended(code) => {
                        let retried = replay.is_replayable().then_some(response.headers());
                        let Some(delay) = retried.and_then(|said| retries.next(code, said, &mut self.rng))
                        else {
                            replay.commit();
                            return Ok(self.respond(response, Some(code), ticket, routed, actual.as_ref()));
                        };
                        ticket.finish(code);
                        let said = grpc::Status::from_headers(response.headers());
                        self.last_error = said.map(|said| format!("{peer}: {said}"));
                        delay
                    }
                    // A44: what its HTTP status stands for is the attempt's status.
                    Answer::NotGrpc => {
                        let (status, headers) = self.not_grpc(response, peer).await;
                        ticket.finish(status::code(status.code() as i32));
                        self.next_attempt(&mut retries, &replay, status, &headers)?
                    }
                },
                // Nothing of it left this process: any other connection will do.
                Err(SendError::Unsent { .. }) => {
                    ticket.unsent();
                    let pause = transparent.unsent(&mut self.rng);
                    self.pause(pause).await.inspect_err(unsent)?;
                    continue;
                }
                Err(error) => {
                    // The server did not look at it.
                    if let SendError::Refused { .. } = error
                        && let Some(pause) = transparent.refused(&mut self.rng)
                    {
                        ticket.unsent();
                        self.last_error = Some(format!("{peer}: {error}"));
                        self.pause(pause).await.inspect_err(unsent)?;
                        continue;
                    }
                    // What the caller's own body failed with says more than the reset that came of it.
                    if let Some(status) = replay.error() {
                        return Err(status);
                    }
                    let status = status::of_send(&error, peer);
                    ticket.finish(status::code(status.code() as i32));
                    self.next_attempt(&mut retries, &replay, status, &HeaderMap::new())?
                }
            };
            self.pause_for_retry(delay).await.inspect_err(unsent)?;
        }
    }

    /// How long to wait before the attempt that follows one which failed like this; the failure itself, if none does.
    fn next_attempt(
        &mut self,
        retries: &mut Retries<'_>,
        replay: &Replay,
        failed: Status,
        headers: &HeaderMap,
    ) -> Result<Duration, Status> {
        let code = status::code(failed.code() as i32);
        let delay = replay.is_replayable().then(|| retries.next(code, headers, &mut self.rng)).flatten();
        let Some(delay) = delay else { return Err(failed) };
        self.last_error = Some(failed.message().to_owned());
        Ok(delay)
    }

    /// Waits before the next attempt of the retry policy.
    async fn pause_for_retry(&mut self, delay: Duration) -> Result<(), Status> {
        self.shared.published.retried().failed();
        self.pause(delay).await
    }

    async fn pause(&mut self, delay: Duration) -> Result<(), Status> {
        if delay.is_zero() {
            tokio::task::yield_now().await;
            return Ok(());
        }
        // The backend of the last attempt is not what is waited for.
        self.peer = None;
        let timer = Timer::after(delay, &self.shared.calls.runtime);
        // However it ends: without its runtime the channel says so at the next look.
        self.until(pin!(timer), Waiting::NextAttempt).await.map(drop)
    }

    /// The status of a response that is not gRPC, and its headers.
    async fn not_grpc(
        &mut self,
        mut response: Response<proxyless_transport::Body>,
        peer: SocketAddr,
    ) -> (Status, HeaderMap) {
        let runtime = &self.shared.calls.runtime;
        let mut beginning = Vec::new();
        let read = answer::read_beginning(response.body_mut(), &mut beginning, runtime);
        // If the deadline comes first, the answer still counts.
        let _ = self.deadline.bound(pin!(read), runtime).await;
        let status = answer::status_of_http(&response, peer, &beginning);
        (status, response.into_parts().0.headers)
    }

    /// Looks at snapshots, each one as it comes, until one gives an answer.
    async fn wait_for<T>(
        &mut self,
        waiting: Waiting<'_>,
        mut look: impl FnMut(&mut Self, &Snapshot) -> Result<Step<T>, Status>,
    ) -> Result<T, Status> {
        loop {
            // The guard is gone before the await.
            let superseded = {
                let snapshot = self.shared.published.load();
                match look(self, &snapshot)? {
                    Step::Done(value) => return Ok(value),
                    Step::Wait => snapshot.superseded.clone(),
                }
            };
            if self.shared.published.has_ended() {
                let target = &self.shared.target;
                let why = format!("{target}: the runtime in which the channel was made has ended");
                return Err(Status::unavailable(why));
            }
            self.until(pin!(superseded.cancelled()), waiting).await?;
        }
    }

    async fn until<T>(
        &mut self,
        event: Pin<&mut impl Future<Output = T>>,
        waiting: Waiting<'_>,
    ) -> Result<T, Status> {
        let arrived = self.deadline.bound(event, &self.shared.calls.runtime).await;
        arrived.ok_or_else(|| self.expired(waiting))
    }

    fn expired(&self, waiting: Waiting<'_>) -> Status {
        waiting.expired(self.shared, self.start.elapsed(), self.peer, self.last_error.as_deref())
    }

    fn waits_for_ready(&self) -> bool {
        self.head.extensions.get::<WaitForReady>().is_some()
    }

    fn route(&mut self, snapshot: &Snapshot) -> Result<Step<Routed>, Status> {
        let Some(data) = &snapshot.data else { return Ok(Step::Wait) };
        let routes = match &data.routes {
            Ok(routes) => routes,
            Err(error) if self.waits_for_ready() => {
                self.last_error = Some(error.message.clone());
                return Ok(Step::Wait);
            }
            Err(error) => return Err(status::of_pick(error)),
        };
        let headers = &self.head.headers;
        let selection = routes
            .select(self.head.uri.path(), headers, &mut self.rng)
            .map_err(|error| Status::unavailable(error.to_string()))?;
        // A31: the route's limit, else the listener's, shortens the caller's deadline.
        let limit = selection.route.max_stream_duration();
        let session = Session::begin(&selection, self.head.uri.path(), headers);
        // A60: a session may go to another cluster of the route than the weights chose.
        let cluster = session.as_ref().map_or(selection.cluster, Session::cluster);
        let attributes = CallAttributes {
            cluster: cluster.id(),
            hash: selection.route.hash(headers, self.shared.channel_id, &mut self.rng),
            auto_host_rewrite: selection.route.auto_host_rewrite(),
            override_host: None,
        };
        let cluster = Arc::clone(cluster);
        // A44: where the application disabled retries, the route's policy is validated and not used.
        let retry_policy = match self.shared.calls.policy_retries {
            PolicyRetries::Enabled => selection.route.retry_policy().cloned(),
            PolicyRetries::Disabled => None,
        };
        self.deadline.limit(self.start, limit);
        Ok(Step::Done(Routed { cluster, retry_policy, attributes, session }))
    }

    /// A connection, or (inside) why this attempt has none, or (outside) why there shall be no other attempt.
    fn pick(&mut self, snapshot: &Snapshot, routed: &Routed) -> Result<Step<Result<Picked, Status>>, Status> {
        let Some(data) = &snapshot.data else { return Ok(Step::Wait) };
        let override_host = routed.session.as_ref().map(|session| session.override_host(clock::now()));
        let mut args = PickArgs {
            path: self.head.uri.path(),
            headers: &self.head.headers,
            attributes: CallAttributes { override_host, ..routed.attributes.clone() },
            rng: &mut self.rng,
        };
        match data.picker.pick(&mut args) {
            PickResult::Complete(pick) => {
                // A connection that is lost but still in this generation's picker: the driver empties the slot and then
                // supersedes this generation, which was loaded before the slot, so the wait ends.
                let connection =
                    pick.target.slot.load().and_then(|any| any.downcast::<DataConnection>().ok());
                let open = connection.filter(|connection| connection.is_open());
                let actual = args.attributes.override_host.and_then(|session| session.actual);
                Ok(open.map_or(Step::Wait, |connection| Step::Done(Ok(Picked { connection, pick, actual }))))
            }
            PickResult::Queue => Ok(Step::Wait),
            PickResult::Fail(error) if self.waits_for_ready() => {
                self.last_error = Some(error.message.clone());
                Ok(Step::Wait)
            }
            PickResult::Fail(error) => Ok(Step::Done(Err(status::of_pick(&error)))),
            // what was dropped is not tried again.
            PickResult::Drop(error) => Err(status::of_pick(&error)),
        }
    }

    /// The request of one attempt.
    fn request(
        &self,
        body: RequestBody,
        rewritten: Option<&HeaderValue>,
        retries: &Retries<'_>,
    ) -> Request<RequestBody> {
        let authority = requests::authority(self.head, rewritten, self.shared.authority.as_ref());
        let mut request = requests::build(self.head, authority, body);
        self.deadline.write(request.headers_mut());
        retries.write(request.headers_mut());
        request
    }

    fn respond(
        &mut self,
        response: Response<proxyless_transport::Body>,
        code: Option<Code>,
        ticket: CallTicket,
        routed: Routed,
        actual: Option<&ActualHost>,
    ) -> Response<XdsBody> {
        let (mut head, body) = response.into_parts();
        if let (Some(session), Some(actual)) = (&routed.session, actual) {
            session.answered(actual, &mut head.headers);
        }
        head.extensions.insert(PeerAddress::new(ticket.target().address));
        let throttle = self.shared.calls.throttle.as_ref();
        // Trailers-only: the call is over.
        let ticket = match code {
            Some(code) => {
                if let Some(throttle) = throttle.filter(|_| code == Code::Ok) {
                    throttle.succeeded();
                }
                let metrics = orca::metrics(&ticket, &head.headers);
                ticket.finish_with(code, metrics);
                None
            }
            None => Some(ticket),
        };
        let mut deadline = std::mem::take(&mut self.deadline);
        deadline.arm(&self.shared.calls.runtime);
        Response::from_parts(head, XdsBody::new(body, ticket, deadline, routed.cluster, throttle.cloned()))
    }
}
