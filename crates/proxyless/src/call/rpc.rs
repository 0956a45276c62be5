//! Runs an RPC: routes it, and makes attempts until one is answered or the RPC has failed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, request};
use proxyless_sans_io::Rng;
use tokio::time::Instant;
use tonic::Status;

use super::attempt::{AttemptOutcome, Attempts};
use super::deadline::Deadline;
use super::peer::PeerAddress;
use super::request as requests;
use super::response::XdsBody;
use super::telemetry::{CallTelemetry, Next};
use super::timer::Timer;
use super::waiting::Waiting;
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
    let telemetry = CallTelemetry::begin(&shared, &head);
    // The head is borrowed: an async function stores each of its arguments twice.
    async move {
        let mut call = Call::new(&shared, &mut head, telemetry);
        let answered = call.run(body).await;
        Ok(answered.unwrap_or_else(|status| {
            if let Some(mut telemetry) = call.telemetry.take() {
                telemetry.ended_as(&status);
            }
            let mut response = status.into_http();
            if let Some(peer) = call.peer {
                response.extensions_mut().insert(PeerAddress(peer));
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
    pub(super) peer: Option<SocketAddr>,
    /// The error of the last attempt.
    pub(super) last_error: Option<String>,
    /// The reason why a queued call has no connection.
    pub(super) pick_error: Option<String>,
    /// Present until the response takes it over.
    pub(super) in_use: Option<InUse>,
    /// Whether the last wait for a snapshot was one.
    pub(super) waited: bool,
    /// The metrics and traces of the RPC, if there are any; the response takes them over.
    pub(super) telemetry: Option<Box<CallTelemetry>>,
}

impl<'a> Call<'a> {
    fn new(
        shared: &'a Shared,
        head: &'a mut request::Parts,
        mut telemetry: Option<Box<CallTelemetry>>,
    ) -> Self {
        let start = Instant::now();
        if let Some(telemetry) = &mut telemetry {
            telemetry.started(start);
        }
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
            in_use: Some(shared.published.activity.begin()),
            waited: false,
            telemetry,
        }
    }

    async fn run(&mut self, body: tonic::body::Body) -> Result<Response<XdsBody>, Status> {
        let shared = self.shared;
        // Attempts that reach a connection are counted there.
        let unsent = |_: &Status| shared.published.unsent.failed();
        let routed = self.wait_for(Waiting::Route, Self::route).await;
        let mut routed = routed.and_then(|routed| routed).inspect_err(unsent)?;
        if self.waited
            && let Some(telemetry) = &mut self.telemetry
        {
            telemetry.route_delayed();
        }
        let faults = std::mem::take(&mut routed.faults);
        if !faults.is_empty() {
            if let Some(telemetry) = &mut self.telemetry {
                telemetry.delayed();
            }
            // Boxed, so that RPCs without faults do not carry its state.
            Box::pin(self.inject(faults)).await?;
        }
        requests::complete(&mut self.head.headers);
        let mut attempts = Attempts::new(routed, body, &shared.calls);
        loop {
            let delay = match self.attempt(&mut attempts).await {
                AttemptOutcome::Answered(response) => return Ok(response),
                AttemptOutcome::Failed(status) => return Err(status),
                AttemptOutcome::Retry(delay) => {
                    shared.published.retried.failed();
                    self.retries(Next::Retry);
                    delay
                }
                AttemptOutcome::RetryTransparently(delay) => {
                    self.retries(Next::Transparent);
                    delay
                }
            };
            self.pause(delay).await.inspect_err(unsent)?;
        }
    }

    fn retries(&mut self, next: Next) {
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.retries(next);
        }
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

    /// Evaluates each new snapshot until one gives a result.
    pub(super) async fn wait_for<T>(
        &mut self,
        waiting: Waiting<'_>,
        mut evaluate: impl FnMut(&mut Self, &Snapshot) -> Option<T>,
    ) -> Result<T, Status> {
        self.waited = false;
        loop {
            // The guard is dropped before the await.
            let superseded = {
                let snapshot = self.shared.published.load();
                if let Some(result) = evaluate(self, &snapshot) {
                    return Ok(result);
                }
                self.shared.exit_idle(&snapshot);
                snapshot.superseded.clone()
            };
            self.shared.check_ended()?;
            self.waited = true;
            self.until(pin!(superseded.cancelled()), waiting).await?;
        }
    }

    /// Awaits an event, until the deadline.
    pub(super) async fn until<T>(
        &mut self,
        event: Pin<&mut impl Future<Output = T>>,
        waiting: Waiting<'_>,
    ) -> Result<T, Status> {
        let arrived = self.deadline.bound(event, &self.shared.calls.runtime).await;
        arrived.ok_or_else(|| self.expired(waiting))
    }

    /// The status of an RPC whose deadline has passed.
    pub(super) fn expired(&self, waiting: Waiting<'_>) -> Status {
        let last_error = self.pick_error.as_deref().or(self.last_error.as_deref());
        waiting.expired(self.shared, self.start.elapsed(), self.peer, last_error)
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
