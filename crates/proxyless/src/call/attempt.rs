//! One attempt of an RPC: picks a connection, opens a stream, sends the request and classifies the response.
//!
//! Each step ends the attempt with an [`AttemptOutcome`] or hands on to the next.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use proxyless_balancer::api::{ActualHost, CallTicket, Code, Pick, WaitingCall};
use proxyless_transport::{Body, ReservedStream, SendError, grpc};
use tonic::Status;

use super::deadline::Deadline;
use super::peer::PeerAddress;
use super::pick::{Picked, Routed};
use super::replay::{Replay, RequestBody};
use super::response::{OpenResponse, XdsBody};
use super::response_kind::{self, ResponseKind};
use super::retry::Retries;
use super::rpc::Call;
use super::settings::CallSettings;
use super::transparent::Transparent;
use super::waiting::Waiting;
use super::{orca, request as requests, status};
use crate::drive::connection::DataConnection;

/// The end of an attempt.
#[allow(clippy::large_enum_variant, reason = "a box would be an allocation per RPC")]
pub(super) enum AttemptOutcome {
    /// The response has started: the RPC is committed.
    Answered(Response<XdsBody>),
    /// The RPC has failed.
    Failed(Status),
    /// The attempt failed, and the retry policy allows another one after this delay (gRFC A44).
    Retry(Duration),
    /// No server processed the request: it is sent again after this delay (gRFC A6).
    RetryTransparently(Duration),
}

/// The state that the attempts of an RPC share.
pub(super) struct Attempts<'a> {
    routed: Routed,
    replay: Replay,
    retries: Retries<'a>,
    transparent: Transparent,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(mut routed: Routed, body: tonic::body::Body, settings: &'a CallSettings) -> Self {
        let retries = Retries::new(routed.retry_policy.take(), settings.throttle.as_deref());
        let replay = Replay::new(body, settings.retry_buffer);
        Self { routed, replay, retries, transparent: Transparent::default() }
    }
}

/// A stream for an attempt, and the body to send on it.
struct OpenStream {
    stream: ReservedStream<RequestBody>,
    body: RequestBody,
    pick: Pick,
    /// The endpoint, for the session's cookie.
    actual: Option<ActualHost>,
}

/// A request that was sent.
struct Sent {
    ticket: CallTicket,
    actual: Option<ActualHost>,
}

/// Waits for a stream of the connection; meanwhile the call counts as waiting.
async fn reserve(connection: &DataConnection, pick: &Pick) -> Result<ReservedStream<RequestBody>, String> {
    let mut reserved = pin!(connection.reserve());
    let mut waiting = None;
    poll_fn(|cx| {
        let polled = reserved.as_mut().poll(cx);
        if polled.is_pending() {
            waiting.get_or_insert_with(|| WaitingCall::start(&pick.target));
        }
        polled
    })
    .await
}

impl Call<'_> {
    /// Makes one attempt.
    pub(super) async fn attempt(&mut self, attempts: &mut Attempts<'_>) -> AttemptOutcome {
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.attempt_started();
        }
        let OpenStream { stream, mut body, pick, actual } = match self.open_stream(attempts).await {
            Ok(open) => open,
            Err(outcome) => return self.count_unsent(outcome),
        };
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.opened(self.waited);
            telemetry.sends(&mut body, &mut self.head.headers);
        }
        let request = self.request(body, &pick, &attempts.retries);
        // From here on the call is tracked.
        let calls = stream.tag().and_then(|tag| Arc::clone(tag).downcast().ok());
        let sent = Sent { ticket: CallTicket::start(pick).on_connection(calls), actual };
        let answered = self.deadline.bound(pin!(stream.send(request)), &self.shared.calls.runtime).await;
        let mut response = match answered {
            Some(Ok(response)) => response,
            Some(Err(error)) => return self.send_failed(&error, sent.ticket, attempts),
            None => return self.timed_out(sent.ticket, &attempts.routed),
        };
        match ResponseKind::of(&response) {
            // A server that ends the call at the deadline may report CANCELLED.
            ResponseKind::Ended(Code::Cancelled) if self.deadline.is_past() => {
                self.timed_out(sent.ticket, &attempts.routed)
            }
            ResponseKind::Begun => self.respond(response, None, sent, attempts),
            ResponseKind::Ended(code) => self.ended(response, code, sent, attempts),
            ResponseKind::NotGrpc => {
                let status = self.not_grpc(&mut response, sent.ticket.target().address).await;
                self.leaves(&sent.ticket);
                // A44: the attempt's status is the one mapped from its HTTP status.
                sent.ticket.finish(status::code_of(&status));
                self.failed(status, response.headers(), attempts)
            }
        }
    }

    /// Counts an attempt that failed without a connection; all others are counted by their connections.
    fn count_unsent(&self, outcome: AttemptOutcome) -> AttemptOutcome {
        if let AttemptOutcome::Failed(_) | AttemptOutcome::Retry(_) = outcome {
            self.shared.published.unsent.failed();
        }
        outcome
    }

    /// Picks a connection and waits for one of its streams.
    async fn open_stream(&mut self, attempts: &mut Attempts<'_>) -> Result<OpenStream, AttemptOutcome> {
        self.peer = None;
        let mut host = None;
        let pick = |call: &mut Self, snapshot: &_| call.pick(snapshot, &mut attempts.routed, &mut host);
        let picked = self.wait_for(Waiting::Connection, pick).await.map_err(AttemptOutcome::Failed)?;
        let (connection, pick, actual) = match picked {
            Picked::Connection { connection, pick, actual } => (connection, pick, actual),
            // A44: an attempt without a connection has failed like any other.
            Picked::Failed(status) => return Err(self.failed(status, &HeaderMap::new(), attempts)),
            // dropped RPCs are not retried.
            Picked::Dropped(status) => return Err(AttemptOutcome::Failed(status)),
        };
        (self.peer, self.pick_error) = (Some(pick.target.address), None);
        let waiting = Waiting::Stream { cluster: &attempts.routed.cluster };
        let reserved = reserve(&connection, &pick);
        let reserved = self.until(pin!(reserved), waiting).await.map_err(AttemptOutcome::Failed)?;
        let Ok(stream) = reserved else {
            return Err(AttemptOutcome::RetryTransparently(attempts.transparent.unsent(&mut self.rng)));
        };
        match attempts.replay.attempt().await {
            Some(body) => Ok(OpenStream { stream, body, pick, actual }),
            None => {
                let why =
                    "the connection was lost and more of the request was sent than its retry buffer holds";
                // If the caller's own body failed meanwhile, that error is more specific.
                let error = attempts.replay.error();
                Err(AttemptOutcome::Failed(error.unwrap_or_else(|| Status::unavailable(why))))
            }
        }
    }

    /// The request of one attempt.
    fn request(&self, body: RequestBody, pick: &Pick, retries: &Retries<'_>) -> Request<RequestBody> {
        let rewritten = pick.authority.as_ref();
        let authority = requests::authority(self.head, rewritten, self.shared.authority.as_ref());
        let secured = pick.target.endpoint.security.is_some();
        let scheme = if secured { Scheme::HTTPS } else { self.shared.calls.fallback_scheme.clone() };
        let mut request = requests::build(self.head, scheme, authority, body);
        self.deadline.write(request.headers_mut());
        retries.write(request.headers_mut());
        request
    }

    /// The deadline has passed before the response started.
    fn timed_out(&mut self, ticket: CallTicket, routed: &Routed) -> AttemptOutcome {
        self.leaves(&ticket);
        ticket.finish(Code::DeadlineExceeded);
        AttemptOutcome::Failed(self.expired(Waiting::Response { cluster: &routed.cluster }))
    }

    /// Records the end of an attempt whose response does not reach the caller.
    fn leaves(&mut self, ticket: &CallTicket) {
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.left(ticket.target());
        }
    }

    /// There is no response.
    fn send_failed(
        &mut self,
        error: &SendError<RequestBody>,
        ticket: CallTicket,
        attempts: &mut Attempts<'_>,
    ) -> AttemptOutcome {
        let peer = ticket.target().address;
        let transparent = &mut attempts.transparent;
        let delay = match error {
            // It was not sent at all: any other connection will do.
            SendError::Unsent { .. } => Some(transparent.unsent(&mut self.rng)),
            // The server did not process it.
            SendError::Refused { .. } => transparent.refused(&mut self.rng).inspect(|_| {
                self.last_error = Some(format!("{peer}: {error}"));
            }),
            _ => None,
        };
        if let Some(delay) = delay {
            ticket.unsent();
            return AttemptOutcome::RetryTransparently(delay);
        }
        self.leaves(&ticket);
        // An error of the caller's own body is more specific than the reset that it caused.
        if let Some(status) = attempts.replay.error() {
            return AttemptOutcome::Failed(status);
        }
        let mut status = status::of_send(error, peer);
        if status.code() == tonic::Code::Cancelled && self.deadline.is_past() {
            status = self.expired(Waiting::Response { cluster: &attempts.routed.cluster });
        }
        ticket.finish(status::code_of(&status));
        self.failed(status, &HeaderMap::new(), attempts)
    }

    /// Trailers-only: the attempt has ended, and nothing was passed to the caller (A44).
    fn ended(
        &mut self,
        response: Response<Body>,
        code: Code,
        sent: Sent,
        attempts: &mut Attempts<'_>,
    ) -> AttemptOutcome {
        let headers = response.headers();
        let Some(delay) = self.retry_delay(code, headers, attempts) else {
            return self.respond(response, Some(code), sent, attempts);
        };
        self.leaves(&sent.ticket);
        let peer = sent.ticket.target().address;
        let status = grpc::Status::from_headers(headers);
        if let (Some(telemetry), Some(status)) = (&mut self.telemetry, &status) {
            telemetry.failed(code, &status.message);
        }
        self.last_error = status.map(|status| format!("{peer}: {status}"));
        // A51: a backend that sheds load reports it, too.
        let metrics = orca::metrics(&sent.ticket, headers);
        sent.ticket.finish_with(code, metrics);
        AttemptOutcome::Retry(delay)
    }

    /// The status of a response that is not gRPC.
    async fn not_grpc(&mut self, response: &mut Response<Body>, peer: SocketAddr) -> Status {
        let runtime = &self.shared.calls.runtime;
        let mut beginning = Vec::new();
        let read = response_kind::read_beginning(response.body_mut(), &mut beginning, runtime);
        // If the deadline comes first, the response still applies.
        let _ = self.deadline.bound(pin!(read), runtime).await;
        response_kind::status_of_http(response, peer, &beginning)
    }

    /// The attempt failed with this status and these trailers.
    fn failed(
        &mut self,
        status: Status,
        trailers: &HeaderMap,
        attempts: &mut Attempts<'_>,
    ) -> AttemptOutcome {
        match self.retry_delay(status::code_of(&status), trailers, attempts) {
            Some(delay) => {
                if let Some(telemetry) = &mut self.telemetry {
                    telemetry.failed(status::code_of(&status), status.message());
                }
                self.last_error = Some(status.message().to_owned());
                AttemptOutcome::Retry(delay)
            }
            None => AttemptOutcome::Failed(status),
        }
    }

    /// The delay before the next attempt by the retry policy; `None` if there is none.
    fn retry_delay(
        &mut self,
        code: Code,
        trailers: &HeaderMap,
        attempts: &mut Attempts<'_>,
    ) -> Option<Duration> {
        let is_replayable = attempts.replay.is_replayable();
        is_replayable.then(|| attempts.retries.next(code, trailers, &mut self.rng)).flatten()
    }

    /// Passes the response to the caller. It has ended if there is a code.
    fn respond(
        &mut self,
        response: Response<Body>,
        code: Option<Code>,
        sent: Sent,
        attempts: &Attempts<'_>,
    ) -> AttemptOutcome {
        attempts.replay.commit();
        let Sent { ticket, actual } = sent;
        let (mut head, body) = response.into_parts();
        status::remove_unreadable_details(&mut head.headers);
        if let (Some(session), Some(actual)) = (&attempts.routed.session, &actual) {
            session.answered(actual, &mut head.headers);
        }
        head.extensions.insert(PeerAddress(ticket.target().address));
        let throttle = self.shared.calls.throttle.as_ref();
        let mut telemetry = self.telemetry.take();
        let ticket = match code {
            Some(code) => {
                if let Some(mut telemetry) = telemetry.take() {
                    telemetry.ended_with(code, &head.headers, ticket.target());
                }
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
        let live = OpenResponse {
            inner: body,
            ticket,
            deadline,
            // A31: the RPC is committed. It picks no more, so only the name of its cluster is kept.
            cluster: Arc::clone(attempts.routed.cluster.own_name()),
            throttle: throttle.cloned(),
            max_header_list_size: self.shared.calls.max_header_list_size,
            _in_use: self.in_use.take(),
            telemetry,
        };
        AttemptOutcome::Answered(Response::from_parts(head, XdsBody(Some(live))))
    }
}
