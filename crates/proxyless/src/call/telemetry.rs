//! The metrics (gRFCs A66, A96) and traces (gRFC A72) of one RPC, from its start to the end of its response. Exists only if
//! the channel has recorders or tracers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, request};
use proxyless_balancer::api::{Code, PickTarget};
use proxyless_sans_io::metrics::PlaceId;
use proxyless_transport::grpc;
use tokio::time::Instant;
use tonic::Status;

use super::messages::MessageCounter;
use super::replay::RequestBody;
use super::status;
use super::traces::{AttemptTraces, CallTraces};
use crate::channel::Shared;
use crate::telemetry::{AttemptStart, EndedAttempt, MethodHandle, RetryCounts};

/// Records an RPC. Dropped before [`Self::ended`], the RPC was cancelled.
pub(crate) struct CallTelemetry {
    metrics: Option<Arc<MethodHandle>>,
    traces: CallTraces,
    /// The first poll; until then the caller has not really started the RPC.
    start: Option<Instant>,
    attempt: Option<Attempt>,
    /// The end of the last attempt.
    idle_since: Option<Instant>,
    /// The kind of the next attempt, unless it is the first.
    next: Next,
    retries: RetryCounts,
    /// Whether the first attempt could not start at once.
    delayed: bool,
    told: bool,
}

/// The kind of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    First,
    Retry,
    Transparent,
}

struct Attempt {
    start: Instant,
    place: PlaceId,
    /// The time at which the attempt was sent, until its duration is recorded for its endpoint.
    sent_at: Option<Instant>,
    /// The status, if it is not that of the RPC. Boxed, because it is rare.
    failure: Option<Box<(Code, String)>>,
    /// The size of a complete request, and the bytes that were read of another one.
    sent: u64,
    streamed: Option<Arc<AtomicU64>>,
    received: MessageCounter,
    traces: AttemptTraces,
}

impl CallTelemetry {
    /// A72: runs in the caller's task, whose context has the parent of the trace.
    pub(super) fn begin(shared: &Shared, head: &request::Parts) -> Option<Box<Self>> {
        let channel = shared.telemetry.as_ref()?;
        // Boxed: an RPC's state is moved many times.
        Some(Box::new(Self {
            metrics: channel.method(head),
            traces: CallTraces(channel.traces(head)),
            start: None,
            attempt: None,
            idle_since: None,
            next: Next::First,
            retries: RetryCounts::default(),
            delayed: false,
            told: false,
        }))
    }

    /// The RPC runs.
    pub(super) fn started(&mut self, at: Instant) {
        self.start = Some(at);
    }

    /// The first attempt does not start with the RPC: a fault is injected.
    pub(super) fn delayed(&mut self) {
        self.delayed = true;
    }

    /// A72: the RPC had to wait for its route.
    pub(super) fn route_delayed(&mut self) {
        self.delayed = true;
        self.traces.name_resolution_delayed();
    }

    /// A66: an attempt starts after the route is known and before the pick.
    pub(super) fn attempt_started(&mut self) {
        // Reading the clock costs as much as recording: a first attempt that did not wait starts with its call.
        let at_once = self.next == Next::First && !self.delayed;
        let now = self.start.filter(|_| at_once).unwrap_or_else(Instant::now);
        if let Some(since) = self.idle_since.take() {
            self.retries.delay += now.saturating_duration_since(since).as_secs_f64();
        }
        match self.next {
            Next::First => {}
            Next::Retry => self.retries.retries += 1,
            Next::Transparent => self.retries.transparent += 1,
        }
        if let Some(metrics) = &self.metrics {
            metrics.started.record(1.0);
        }
        // A72: transparent retries do not count as previous attempts.
        let previous_attempts = self.retries.retries;
        let transparent_retry = self.next == Next::Transparent;
        self.attempt = Some(Attempt {
            start: now,
            place: PlaceId::default(),
            sent_at: None,
            failure: None,
            sent: 0,
            streamed: None,
            received: MessageCounter::default(),
            traces: self.traces.attempt(AttemptStart { previous_attempts, transparent_retry }),
        });
    }

    /// The place that the last pick of the attempt asked (A89).
    pub(super) fn picked(&mut self, place: PlaceId) {
        if let Some(attempt) = &mut self.attempt {
            attempt.place = place;
        }
    }

    /// The attempt has a stream. `delayed`: it had to wait for it.
    pub(super) fn opened(&mut self, delayed: bool) {
        let Some(attempt) = &mut self.attempt else { return };
        // A72: the event comes with the stream.
        if delayed {
            attempt.traces.pick_delayed();
        }
        attempt.sent_at = Some(if delayed { Instant::now() } else { attempt.start });
    }

    /// The attempt sends this body, with these headers.
    pub(super) fn sends(&mut self, body: &mut RequestBody, headers: &mut HeaderMap) {
        let Some(attempt) = &mut self.attempt else { return };
        attempt.traces.inject(headers);
        match body.whole_data() {
            Some(data) => {
                let mut counter = MessageCounter::default();
                counter.feed(data, |message| attempt.traces.sent(message));
                attempt.sent = counter.bytes();
            }
            None => {
                let counter = Arc::<AtomicU64>::default();
                body.count_into(Arc::clone(&counter), attempt.traces.clone());
                attempt.streamed = Some(counter);
            }
        }
    }

    /// Data of the response.
    pub(super) fn received(&mut self, data: &[u8]) {
        if let Some(Attempt { received, traces, .. }) = &mut self.attempt {
            received.feed(data, |message| traces.received(message));
        }
    }

    /// The attempt has failed with this status; its end follows.
    pub(super) fn failed(&mut self, code: Code, message: &str) {
        if let Some(attempt) = &mut self.attempt {
            let message = if attempt.traces.is_empty() { String::new() } else { message.to_owned() };
            attempt.failure = Some(Box::new((code, message)));
        }
    }

    /// The attempt leaves its endpoint without a response to the caller; its end follows.
    pub(super) fn left(&mut self, target: &PickTarget) {
        if !target.durations.is_empty() {
            self.record_endpoint(target, &mut Elapsed::until(Instant::now()));
        }
    }

    /// Records the duration of the attempt for its endpoint, which is borrowed: all threads write its reference count.
    fn record_endpoint(&mut self, target: &PickTarget, elapsed: &mut Elapsed) {
        if let Some(sent_at) = self.attempt.as_mut().and_then(|attempt| attempt.sent_at.take()) {
            target.durations.record(elapsed.since(sent_at));
        }
    }

    /// The attempt has ended, and another one follows.
    pub(super) fn retries(&mut self, next: Next) {
        let now = Instant::now();
        // A transparent retry follows the loss of a connection.
        let elapsed = &mut Elapsed::until(now);
        self.end_attempt(Code::Unavailable, "no server has processed the request", elapsed, None);
        self.idle_since = Some(now);
        self.next = next;
    }

    /// The RPC has ended with the status in these headers or trailers of the target.
    pub(super) fn ended_with(&mut self, code: Code, headers: &HeaderMap, target: &PickTarget) {
        let message = || grpc::Status::from_headers(headers).map(|status| status.message);
        // A72: the status of a successful call has no description.
        let message = if code == Code::Ok || self.traces.is_empty() { None } else { message() };
        self.ended(code, message.as_deref().unwrap_or_default(), Some(target));
    }

    /// The RPC has failed.
    pub(super) fn ended_as(&mut self, status: &Status) {
        self.ended(status::code_of(status), status.message(), None);
    }

    /// The RPC has ended, with a response of the target if there is one.
    #[inline]
    pub(super) fn ended(&mut self, code: Code, message: &str, target: Option<&PickTarget>) {
        if !std::mem::replace(&mut self.told, true) {
            self.tell_end(code, message, target);
        }
    }

    fn tell_end(&mut self, code: Code, message: &str, target: Option<&PickTarget>) {
        let elapsed = &mut Elapsed::until(Instant::now());
        if let Some(target) = target.filter(|target| !target.durations.is_empty()) {
            self.record_endpoint(target, elapsed);
        }
        // The attempt of an RPC that ends has the status of the RPC.
        if let Some(attempt) = &mut self.attempt {
            attempt.failure = None;
        }
        let call_seconds = self.start.map_or(0.0, |start| elapsed.since(start));
        let with_attempt = self.end_attempt(code, message, elapsed, Some(call_seconds));
        if let Some(metrics) = &self.metrics {
            metrics.call_ended(code, (!with_attempt).then_some(call_seconds), self.retries);
        }
        self.traces.ended(code, message);
    }

    /// Ends the attempt, with this status unless it has one, and its call if that has a duration. Returns whether there was
    /// one.
    #[inline]
    fn end_attempt(
        &mut self,
        code: Code,
        message: &str,
        elapsed: &mut Elapsed,
        call_seconds: Option<f64>,
    ) -> bool {
        let Some(attempt) = &self.attempt else { return false };
        let failure = attempt.failure.as_deref();
        let (code, message) = failure.map_or((code, message), |(code, message)| (*code, message));
        if let Some(metrics) = &self.metrics {
            let streamed = attempt.streamed.as_ref();
            let sent = streamed.map_or(attempt.sent, |streamed| streamed.load(Ordering::Relaxed));
            let mut ended = EndedAttempt::new(elapsed.since(attempt.start), sent, attempt.received.bytes());
            ended.call_seconds = call_seconds;
            metrics.attempt_ended(attempt.place, code, &ended);
        }
        attempt.traces.ended(code, message);
        self.attempt = None;
        true
    }
}

/// The time up to one moment. Usually all of an RPC's durations have the same start: the last one is kept.
struct Elapsed {
    now: Instant,
    start: Instant,
    seconds: f64,
}

impl Elapsed {
    fn until(now: Instant) -> Self {
        Self { now, start: now, seconds: 0.0 }
    }

    fn since(&mut self, start: Instant) -> f64 {
        if start != self.start {
            self.start = start;
            self.seconds = self.now.saturating_duration_since(start).as_secs_f64();
        }
        self.seconds
    }
}

impl Drop for CallTelemetry {
    fn drop(&mut self) {
        self.ended(Code::Cancelled, "the caller has cancelled the call", None);
    }
}
