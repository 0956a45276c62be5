//! Runs an RPC: routes it, picks a connection, sends it, and retries it transparently or by the route's policy.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, request};
use http_body::Body as _;
use proxyless_balancer::api::{ActualHost, CallTicket, Code};
use proxyless_sans_io::Rng;
use proxyless_transport::{SendError, grpc};
use tokio::time::Instant;
use tonic::Status;

use super::answer::{self, Answer};
use super::deadline::Deadline;
use super::peer::PeerAddress;
use super::pick::{Picked, Routed, Step};
use super::replay::{Replay, RequestBody};
use super::response::{Live, XdsBody};
use super::retry::Retries;
use super::timer::Timer;
use super::transparent::Transparent;
use super::waiting::Waiting;
use super::{orca, request as requests, status};
use crate::activity::InUse;
use crate::channel::Shared;
use crate::clock;
use crate::snapshot::Snapshot;

/// Runs one RPC up to its response headers. Errors are returned as trailers-only responses, like those of a server.
pub(crate) fn call(
    shared: Arc<Shared>,
    request: Request<tonic::body::Body>,
) -> impl Future<Output = Result<Response<XdsBody>, Infallible>> + Send {
    let (mut head, body) = request.into_parts();
    // The head is borrowed: an async function stores each of its arguments twice.
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
pub(super) struct Call<'a> {
    pub(super) shared: &'a Shared,
    pub(super) head: &'a mut request::Parts,
    pub(super) start: Instant,
    pub(super) deadline: Deadline,
    pub(super) rng: Rng,
    /// The backend of the current attempt.
    peer: Option<SocketAddr>,
    /// The error of the last attempt.
    last_error: Option<String>,
    /// The reason why a queued call has no connection.
    pub(super) pick_error: Option<String>,
    /// Present until the response takes it over.
    in_use: Option<InUse>,
}

impl<'a> Call<'a> {
    fn new(shared: &'a Shared, head: &'a mut request::Parts) -> Self {
        let start = Instant::now();
        let deadline = Deadline::of_request(&head.headers, start);
        Self {
            shared,
            head,
            start,
            deadline,
            rng: clock::rng(),
            peer: None,
            last_error: None,
            pick_error: None,
            in_use: Some(shared.published.activity().begin()),
        }
    }

    async fn run(&mut self, body: tonic::body::Body) -> Result<Response<XdsBody>, Status> {
        let shared = self.shared;
        // Calls that reach a connection are counted there.
        let unsent = |_: &Status| shared.published.unsent().failed();
        let mut routed = self.wait_for(Waiting::Route, Self::route).await.inspect_err(unsent)?;
        requests::complete(&mut self.head.headers);
        let mut replay = Replay::new(body, shared.calls.retry_buffer);
        let mut transparent = Transparent::default();
        let retry_policy = routed.retry_policy.take();
        let mut retries = Retries::new(retry_policy.as_deref(), shared.calls.throttle.as_deref());
        loop {
            self.peer = None;
            let mut host = None;
            let picked = self
                .wait_for(Waiting::Connection, |call, snapshot| call.pick(snapshot, &mut routed, &mut host))
                .await
                .inspect_err(unsent)?;
            let Picked { connection, pick, actual } = match picked.inspect_err(unsent) {
                Ok(picked) => picked,
                // A44: an attempt without a connection has failed like any other.
                Err(status) => {
                    let delay = self.next_attempt(&mut retries, &replay, status, &HeaderMap::new())?;
                    self.pause_for_retry(delay).await.inspect_err(unsent)?;
                    continue;
                }
            };
            let peer = pick.target.address;
            (self.peer, self.pick_error) = (Some(peer), None);
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
                // If the caller's own body failed meanwhile, that error is more specific.
                return Err(replay.error().unwrap_or_else(|| Status::unavailable(why))).inspect_err(unsent);
            };
            let request = self.request(body, pick.authority.as_ref(), &retries);
            // From here on the call is tracked.
            let ticket = CallTicket::start(pick);
            let sent = self.deadline.bound(pin!(reserved.send(request)), &shared.calls.runtime).await;
            let Some(sent) = sent else {
                ticket.finish(Code::DeadlineExceeded);
                return Err(self.expired(Waiting::Response { cluster: &routed.cluster }));
            };
            let delay = match sent {
                Ok(response) => match Answer::of(&response) {
                    // A server that ends the call at the deadline may report CANCELLED.
                    Answer::Ended(Code::Cancelled) if self.deadline.is_past() => {
                        ticket.finish(Code::DeadlineExceeded);
                        return Err(self.expired(Waiting::Response { cluster: &routed.cluster }));
                    }
                    Answer::Begun => {
                        replay.commit();
                        return Ok(self.respond(response, None, ticket, routed, actual.as_ref()));
                    }
                    // Trailers-only: the attempt has ended, and nothing was passed to the caller (A44).
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
                    // A44: the attempt's status is the one mapped from its HTTP status.
                    Answer::NotGrpc => {
                        let (status, headers) = self.not_grpc(response, peer).await;
                        ticket.finish(status::code_of(&status));
                        self.next_attempt(&mut retries, &replay, status, &headers)?
                    }
                },
                // It was not sent at all: any other connection will do.
                Err(SendError::Unsent { .. }) => {
                    ticket.unsent();
                    let pause = transparent.unsent(&mut self.rng);
                    self.pause(pause).await.inspect_err(unsent)?;
                    continue;
                }
                Err(error) => {
                    // The server did not process it.
                    if let SendError::Refused { .. } = error
                        && let Some(pause) = transparent.refused(&mut self.rng)
                    {
                        ticket.unsent();
                        self.last_error = Some(format!("{peer}: {error}"));
                        self.pause(pause).await.inspect_err(unsent)?;
                        continue;
                    }
                    // An error of the caller's own body is more specific than the reset that it caused.
                    if let Some(status) = replay.error() {
                        return Err(status);
                    }
                    let status = match status::of_send(&error, peer) {
                        status if status.code() == tonic::Code::Cancelled && self.deadline.is_past() => {
                            self.expired(Waiting::Response { cluster: &routed.cluster })
                        }
                        status => status,
                    };
                    ticket.finish(status::code_of(&status));
                    self.next_attempt(&mut retries, &replay, status, &HeaderMap::new())?
                }
            };
            self.pause_for_retry(delay).await.inspect_err(unsent)?;
        }
    }

    /// The delay before the next attempt after this failure; the failure itself if there is none.
    fn next_attempt(
        &mut self,
        retries: &mut Retries<'_>,
        replay: &Replay,
        failed: Status,
        headers: &HeaderMap,
    ) -> Result<Duration, Status> {
        let code = status::code_of(&failed);
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
        // The wait does not concern the backend of the last attempt.
        self.peer = None;
        let timer = Timer::after(delay, &self.shared.calls.runtime);
        // Ends in any case: without its runtime the channel reports that at the next check.
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
        // If the deadline comes first, the response still applies.
        let _ = self.deadline.bound(pin!(read), runtime).await;
        let status = answer::status_of_http(&response, peer, &beginning);
        (status, response.into_parts().0.headers)
    }

    /// Evaluates each new snapshot until one gives a result.
    async fn wait_for<T>(
        &mut self,
        waiting: Waiting<'_>,
        mut look: impl FnMut(&mut Self, &Snapshot) -> Result<Step<T>, Status>,
    ) -> Result<T, Status> {
        loop {
            // The guard is dropped before the await.
            let superseded = {
                let snapshot = self.shared.published.load();
                match look(self, &snapshot)? {
                    Step::Done(value) => return Ok(value),
                    Step::Wait => {
                        self.shared.exit_idle(&snapshot);
                        snapshot.superseded.clone()
                    }
                }
            };
            self.shared.check_ended()?;
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
        let last_error = self.pick_error.as_deref().or(self.last_error.as_deref());
        waiting.expired(self.shared, self.start.elapsed(), self.peer, last_error)
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
        status::remove_unreadable_details(&mut head.headers);
        if let (Some(session), Some(actual)) = (&routed.session, actual) {
            session.answered(actual, &mut head.headers);
        }
        head.extensions.insert(PeerAddress::new(ticket.target().address));
        let throttle = self.shared.calls.throttle.as_ref();
        // Trailers-only: the call has ended.
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
        if body.is_end_stream() {
            // Nothing more is waited for, so no timer is kept.
            deadline = Deadline::default();
        } else {
            deadline.arm(&self.shared.calls.runtime);
        }
        // A31: the RPC is committed. It picks no more, so its cluster may be removed, with `routed`.
        let cluster = Arc::clone(routed.cluster.name());
        let (throttle, _in_use) = (throttle.cloned(), self.in_use.take());
        let max_header_list_size = self.shared.calls.max_header_list_size;
        let live = Live { inner: body, ticket, deadline, cluster, throttle, max_header_list_size, _in_use };
        Response::from_parts(head, XdsBody::new(live))
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
