//! The metrics of one RPC (gRFCs A66, A96), from its start to the end of its response. Exists only if the channel has
//! recorders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proxyless_balancer::api::Code;
use proxyless_sans_io::metrics::PlaceId;
use tokio::time::Instant;

use super::messages::MessageCounter;
use super::replay::RequestBody;
use crate::telemetry::{MethodMetrics, RetryCounts};

/// Records an RPC. Dropped before [`Self::ended`], the RPC was cancelled.
pub(crate) struct CallTelemetry {
    method: Arc<MethodMetrics>,
    start: Instant,
    attempt: Option<Attempt>,
    /// The end of the last attempt.
    idle_since: Option<Instant>,
    /// The kind of the next attempt, unless it is the first.
    next: Next,
    retries: RetryCounts,
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
    /// The status, once it is known.
    code: Option<Code>,
    /// The size of a complete request, and the bytes that were read of another one.
    sent: u64,
    streamed: Option<Arc<AtomicU64>>,
    received: MessageCounter,
}

impl CallTelemetry {
    pub(super) fn begin(method: Arc<MethodMetrics>, start: Instant) -> Box<Self> {
        Box::new(Self {
            method,
            start,
            attempt: None,
            idle_since: None,
            next: Next::First,
            retries: RetryCounts::default(),
            told: false,
        })
    }

    /// A66: an attempt starts after the route is known and before the pick.
    pub(super) fn attempt_started(&mut self) {
        let now = Instant::now();
        if let Some(since) = self.idle_since.take() {
            self.retries.delay += now.saturating_duration_since(since).as_secs_f64();
        }
        match self.next {
            Next::First => {}
            Next::Retry => self.retries.retries += 1,
            Next::Transparent => self.retries.transparent += 1,
        }
        self.method.started.record(1.0);
        self.attempt = Some(Attempt {
            start: now,
            place: PlaceId::default(),
            code: None,
            sent: 0,
            streamed: None,
            received: MessageCounter::default(),
        });
    }

    /// The place that the last pick of the attempt asked (A89).
    pub(super) fn picked(&mut self, place: PlaceId) {
        if let Some(attempt) = &mut self.attempt {
            attempt.place = place;
        }
    }

    /// The attempt sends this body.
    pub(super) fn sends(&mut self, body: &mut RequestBody) {
        let Some(attempt) = &mut self.attempt else { return };
        match body.whole_data() {
            Some(data) => {
                let mut counter = MessageCounter::default();
                counter.feed(data);
                attempt.sent = counter.bytes();
            }
            None => {
                let counter = Arc::<AtomicU64>::default();
                body.count_into(Arc::clone(&counter));
                attempt.streamed = Some(counter);
            }
        }
    }

    /// Data of the response.
    pub(super) fn received(&mut self, data: &[u8]) {
        if let Some(attempt) = &mut self.attempt {
            attempt.received.feed(data);
        }
    }

    /// The attempt has failed with this status; its end follows.
    pub(super) fn failed(&mut self, code: Code) {
        if let Some(attempt) = &mut self.attempt {
            attempt.code = Some(code);
        }
    }

    /// The attempt has ended, and another one follows.
    pub(super) fn retries(&mut self, next: Next) {
        let now = Instant::now();
        // A transparent retry follows the loss of a connection.
        self.end_attempt(Code::Unavailable, now);
        self.idle_since = Some(now);
        self.next = next;
    }

    /// The RPC has ended.
    pub(super) fn ended(&mut self, code: Code) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let now = Instant::now();
        // The attempt of an RPC that ends has the status of the RPC.
        if let Some(attempt) = &mut self.attempt {
            attempt.code = Some(code);
        }
        self.end_attempt(code, now);
        let seconds = now.saturating_duration_since(self.start).as_secs_f64();
        self.method.call_ended(code, seconds, self.retries);
    }

    fn end_attempt(&mut self, otherwise: Code, now: Instant) {
        let Some(attempt) = self.attempt.take() else { return };
        let Attempt { start, place, code, sent, streamed, received } = attempt;
        let sent = streamed.map_or(sent, |streamed| streamed.load(Ordering::Relaxed));
        let seconds = now.saturating_duration_since(start).as_secs_f64();
        self.method.attempt_ended(place, code.unwrap_or(otherwise), seconds, sent, received.bytes());
    }
}

impl Drop for CallTelemetry {
    fn drop(&mut self) {
        self.ended(Code::Cancelled);
    }
}
