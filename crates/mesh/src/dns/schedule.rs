//! When one name is queried.

use std::time::Duration;

use proxyless_sans_io::{Backoff, Rng, Time};

use super::{DnsConfig, DnsRefresh};

/// No refresh comes sooner than this after an answer, whatever the records or the options say.
const MIN_REFRESH: Duration = Duration::from_secs(1);

/// The clockwork of one name: it says what is to happen when; whoever holds it acts.
#[derive(Debug)]
pub(super) struct DnsSchedule {
    state: State,
    backoff: Backoff,
    /// When the last query began.
    began: Time,
}

#[derive(Debug)]
enum State {
    /// Needs no query, now or later.
    Fixed,
    /// Waits for an answer.
    Querying { query: u64, deadline: Time },
    /// The last query succeeded. `requested` is when a request for fresh addresses is served, `refresh` when the
    /// addresses are looked up anyway.
    Resolved { requested: Option<Time>, refresh: Option<Time> },
    /// The last query failed; the next one comes by itself.
    Failed { retry: Time },
}

/// What the clock brings.
pub(super) enum Due {
    Nothing,
    /// A query is to begin.
    Query,
    /// This one has taken too long.
    TimedOut {
        query: u64,
    },
}

impl DnsSchedule {
    /// A name whose addresses never change.
    pub(super) fn fixed(config: &DnsConfig) -> Self {
        Self { state: State::Fixed, backoff: Backoff::new(config.backoff), began: Time::ZERO }
    }

    /// A name whose first query begins now.
    pub(super) fn new(config: &DnsConfig, now: Time, query: u64) -> Self {
        let mut new = Self::fixed(config);
        new.begin(config, now, query);
        new
    }

    pub(super) fn begin(&mut self, config: &DnsConfig, now: Time, query: u64) {
        self.began = now;
        self.state = State::Querying { query, deadline: now + config.query_timeout };
    }

    /// The query that is under way.
    pub(super) fn query(&self) -> Option<u64> {
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

    /// A37-34: someone wants fresh addresses. A query under way, or one that comes by itself, will do.
    pub(super) fn request(&mut self, config: &DnsConfig, now: Time) {
        if let State::Resolved { requested: requested @ None, .. } = &mut self.state {
            *requested = Some(now.max(self.began + config.min_resolution_interval));
        }
    }

    /// Nothing that waits shall wait any longer.
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
