//! The schedule of one name.

use std::time::Duration;

use proxyless_sans_io::{Backoff, Rng, Time};

use super::{DnsConfig, DnsRefresh, QueryId};

/// The minimum time between an answer and a refresh, whatever the records or the options say.
const MIN_REFRESH: Duration = Duration::from_secs(1);

/// The schedule of one name. It only says what is due; the caller acts.
#[derive(Debug)]
pub(super) struct DnsSchedule {
    state: State,
    backoff: Backoff,
    /// The start of the last query.
    began: Time,
}

#[derive(Debug)]
enum State {
    /// Needs no query.
    Fixed,
    /// Waits for an answer.
    Querying { query: QueryId, deadline: Time },
    /// The last query succeeded. `requested` is when a delayed request for re-resolution is due, `refresh` when a
    /// refresh is due.
    Resolved { requested: Option<Time>, refresh: Option<Time> },
    /// The last query failed; the next one is scheduled.
    Failed { retry: Time },
}

/// An action that is due.
pub(super) enum Due {
    Nothing,
    /// Start a query.
    Query,
    /// This query has timed out.
    TimedOut {
        query: QueryId,
    },
}

impl DnsSchedule {
    /// A name whose addresses never change.
    pub(super) fn fixed(config: &DnsConfig) -> Self {
        Self { state: State::Fixed, backoff: Backoff::new(config.backoff), began: Time::ZERO }
    }

    /// A name whose first query starts now.
    pub(super) fn new(config: &DnsConfig, now: Time, query: QueryId) -> Self {
        let mut new = Self::fixed(config);
        new.begin(config, now, query);
        new
    }

    pub(super) fn begin(&mut self, config: &DnsConfig, now: Time, query: QueryId) {
        self.began = now;
        self.state = State::Querying { query, deadline: now + config.query_timeout };
    }

    /// The query in flight.
    pub(super) fn query(&self) -> Option<QueryId> {
        match self.state {
            State::Querying { query, .. } => Some(query),
            _ => None,
        }
    }

    pub(super) fn succeeded(&mut self, config: &DnsConfig, now: Time, ttl: Option<Duration>) {
        self.backoff.reset();
        let after = match config.refresh {
            DnsRefresh::OnRequest => None,
            DnsRefresh::Ttl { min } => ttl.map(|ttl| ttl.max(min)),
            DnsRefresh::Every(interval) => Some(interval),
        };
        let refresh = after.map(|after| now + after.max(MIN_REFRESH));
        self.state = State::Resolved { requested: None, refresh };
    }

    pub(super) fn failed(&mut self, now: Time, rng: &mut Rng) {
        self.state = State::Failed { retry: now + self.backoff.next_delay(rng) };
    }

    /// A37-34: requests re-resolution. A query in flight or scheduled suffices.
    pub(super) fn request(&mut self, config: &DnsConfig, now: Time) {
        if let State::Resolved { requested: requested @ None, .. } = &mut self.state {
            *requested = Some(now.max(self.began + config.min_resolution_interval));
        }
    }

    /// Makes everything that is waiting due now.
    pub(super) fn hurry(&mut self, now: Time) {
        match &mut self.state {
            State::Failed { retry: waiting } | State::Resolved { requested: Some(waiting), .. } => {
                self.backoff.reset();
                *waiting = now;
            }
            State::Fixed | State::Querying { .. } | State::Resolved { requested: None, .. } => {}
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Fixed => None,
            State::Querying { deadline, .. } => Some(deadline),
            State::Resolved { requested, refresh } => requested.into_iter().chain(refresh).min(),
            State::Failed { retry } => Some(retry),
        }
    }

    pub(super) fn due(&self, now: Time) -> Due {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return Due::Nothing;
        }
        self.query().map_or(Due::Query, |query| Due::TimedOut { query })
    }
}
