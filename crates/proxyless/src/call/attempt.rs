//! Routes an RPC, picks a connection for it, sends it, and sends again what no server has seen or the route retries.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::header::{TE, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, Uri, Version, request};
use proxyless_balancer::api::{ActualHost, CallAttributes, CallTicket, Code, Pick, PickArgs, PickResult};
use proxyless_mesh::cluster_ref::ClusterRef;
use proxyless_sans_io::Rng;
use proxyless_transport::{SendError, grpc};
use proxyless_xds::resource::RetryPolicy;
use tokio::time::Instant;
use tonic::Status;

use super::deadline::Deadline;
use super::options::WaitForReady;
use super::orca;
use super::replay::{Replay, RequestBody};
use super::response::XdsBody;
use super::retry::Retries;
use super::status;
use crate::channel::Shared;
use crate::clock;
use crate::drive::connection::DataConnection;
use crate::filters::Session;
use crate::snapshot::Snapshot;
use crate::user_agent;

/// Runs one RPC up to its response headers. Failures are trailers-only responses, as if a server had sent them.
pub(crate) fn call(
    shared: Arc<Shared>,
    request: Request<tonic::body::Body>,
) -> impl Future<Output = Result<Response<XdsBody>, Infallible>> + Send {
    let (mut head, body) = request.into_parts();
    // The head is lent: an async function holds each of its arguments twice.
    async move { Ok(Call::new(&shared, &mut head).run(body).await.unwrap_or_else(Status::into_http)) }
}

/// An RPC that has not been answered yet.
struct Call<'a> {
    shared: &'a Shared,
    head: &'a mut request::Parts,
    start: Instant,
    deadline: Deadline,
    rng: Rng,
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
        Self { shared, head, start, deadline, rng: clock::rng() }
    }

    async fn run(mut self, body: tonic::body::Body) -> Result<Response<XdsBody>, Status> {
        self.shared.exit_idle();
        let shared = self.shared;
        // Calls that come to a connection are counted by it.
        let unsent = |_: &Status| shared.published.unsent().failed();
        let routed = self.wait_for("a route", Self::route).await.inspect_err(unsent)?;
        self.complete_headers();
        let mut replay = Replay::new(body);
        let mut refused = false;
        let mut retries = Retries::new(routed.retry_policy.as_deref());
        loop {
            let picked = self
                .wait_for("a connection", |call, snapshot| call.pick(snapshot, &routed))
                .await
                .inspect_err(unsent)?;
            let Picked { connection, pick, actual } = match picked.inspect_err(unsent) {
                Ok(picked) => picked,
                // A44: an attempt that finds no connection has failed like any other.
                Err(status) => {
                    let delay = self.next_attempt(&mut retries, &replay, &status).ok_or(status)?;
                    self.pause(delay).await.inspect_err(unsent)?;
                    continue;
                }
            };
            let reserved = self.until(pin!(connection.reserve()), "a stream of the connection").await;
            let Ok(reserved) = reserved.inspect_err(unsent)? else {
                tokio::task::yield_now().await;
                continue;
            };
            let Some(body) = replay.attempt().await else {
                let why = "the connection was lost and the request is too long to send again";
                // If the caller's own body failed meanwhile, that says more.
                return Err(replay.error().unwrap_or_else(|| Status::unavailable(why))).inspect_err(unsent);
            };
            let request = self.request(body, pick.authority.as_ref(), &retries);
            // From here on the call counts.
            let ticket = CallTicket::start(pick);
            let Some(sent) = self.deadline.bound(pin!(reserved.send(request))).await else {
                ticket.finish(Code::DeadlineExceeded);
                return Err(self.expired("the response"));
            };
            let delay = match sent {
                Ok(response) => {
                    // Trailers-only: the attempt is over, and nothing has been handed to the caller (A44).
                    let code = status::in_headers(response.headers());
                    let retried = code.filter(|_| replay.is_replayable()).and_then(|code| {
                        Some((code, retries.next(code, response.headers(), &mut self.rng)?))
                    });
                    let Some((code, delay)) = retried else {
                        replay.commit();
                        return Ok(self.respond(response, code, ticket, routed, actual.as_ref()));
                    };
                    ticket.finish(code);
                    delay
                }
                // Nothing of it left this process: any other connection will do, as often as it takes.
                Err(SendError::Unsent { .. }) => {
                    ticket.unsent();
                    tokio::task::yield_now().await;
                    continue;
                }
                // The server did not look at it. A connection that is going away cannot refuse twice; a server that
                // refuses single streams is asked once more (A6).
                Err(SendError::Refused { .. }) if !connection.is_open() || !refused => {
                    refused = connection.is_open();
                    ticket.unsent();
                    continue;
                }
                Err(error) => {
                    // What the caller's own body failed with says more than the reset that came of it.
                    if let Some(status) = replay.error() {
                        return Err(status);
                    }
                    let status = status::of_send(&error, ticket.target().address);
                    ticket.finish(status::code(status.code() as i32));
                    self.next_attempt(&mut retries, &replay, &status).ok_or(status)?
                }
            };
            self.pause(delay).await.inspect_err(unsent)?;
        }
    }

    /// How long to wait before the attempt that follows one which failed like this, if one does.
    fn next_attempt(
        &mut self,
        retries: &mut Retries<'_>,
        replay: &Replay,
        failed: &Status,
    ) -> Option<Duration> {
        let code = status::code(failed.code() as i32);
        replay.is_replayable().then(|| retries.next(code, &HeaderMap::new(), &mut self.rng)).flatten()
    }

    /// Waits before the next attempt.
    async fn pause(&mut self, delay: Duration) -> Result<(), Status> {
        self.shared.published.retried().failed();
        self.until(pin!(tokio::time::sleep(delay)), "the next attempt").await
    }

    /// Looks at snapshots, each one as it comes, until one gives an answer.
    async fn wait_for<T>(
        &mut self,
        what: &str,
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
            self.until(pin!(superseded.cancelled()), what).await?;
        }
    }

    async fn until<T>(&mut self, event: Pin<&mut impl Future<Output = T>>, what: &str) -> Result<T, Status> {
        self.deadline.bound(event).await.ok_or_else(|| self.expired(what))
    }

    fn expired(&self, what: &str) -> Status {
        let Shared { target, published, server, node, .. } = self.shared;
        let (waited, state, missing) =
            (self.start.elapsed(), *published.states().borrow(), published.missing());
        Status::deadline_exceeded(format!(
            "deadline exceeded after {waited:.3?} waiting for {what}: {target} is {state}{missing} (server {server}, node {node})"
        ))
    }

    fn waits_for_ready(&self) -> bool {
        self.head.extensions.get::<WaitForReady>().is_some()
    }

    fn route(&mut self, snapshot: &Snapshot) -> Result<Step<Routed>, Status> {
        let Some(data) = &snapshot.data else { return Ok(Step::Wait) };
        let routes = match &data.routes {
            Ok(routes) => routes,
            Err(_) if self.waits_for_ready() => return Ok(Step::Wait),
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
        let retry_policy = selection.route.retry_policy().cloned();
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
            PickResult::Fail(_) if self.waits_for_ready() => Ok(Step::Wait),
            PickResult::Fail(error) => Ok(Step::Done(Err(status::of_pick(&error)))),
            // what was dropped is not tried again.
            PickResult::Drop(error) => Err(status::of_pick(&error)),
        }
    }

    /// Adds what every request of gRPC has. Routes have not seen it.
    fn complete_headers(&mut self) {
        let headers = &mut self.head.headers;
        headers.insert(USER_AGENT, user_agent::header(headers.get(USER_AGENT)));
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }

    /// The request of one attempt.
    fn request(
        &self,
        body: RequestBody,
        authority: Option<&HeaderValue>,
        retries: &Retries<'_>,
    ) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.uri(authority);
        let headers = request.headers_mut();
        headers.clone_from(&self.head.headers);
        self.deadline.write(headers);
        retries.write(headers);
        request
    }

    /// `:authority` is the endpoint's host name where the route asks for that (A81), else the origin that the caller
    /// set, else the target's name (A27-62).
    fn uri(&self, rewritten: Option<&HeaderValue>) -> Uri {
        let rewritten = rewritten.and_then(|value| Authority::try_from(value.as_bytes()).ok());
        let authority = rewritten
            .or_else(|| self.head.uri.authority().cloned())
            .or_else(|| self.shared.authority.clone());
        let path = self.head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = authority.or_else(|| Some(Authority::from_static("localhost")));
        parts.path_and_query = Some(path);
        // Scheme, authority and path together always make a URI.
        Uri::from_parts(parts).unwrap_or_default()
    }

    fn respond(
        self,
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
        // Trailers-only: the call is over.
        let ticket = match code {
            Some(code) => {
                let metrics = orca::metrics(&ticket, &head.headers);
                ticket.finish_with(code, metrics);
                None
            }
            None if head.status != http::StatusCode::OK => {
                ticket.finish(status::code(grpc::code_of_http_status(head.status.as_u16())));
                None
            }
            None => Some(ticket),
        };
        Response::from_parts(head, XdsBody::new(body, ticket, self.deadline, routed.cluster))
    }
}
