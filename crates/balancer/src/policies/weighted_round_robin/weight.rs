//! The weight of one endpoint over time: blackout and expiration.

use std::time::Duration;

use proxyless_sans_io::Time;

/// The periods of the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Periods {
    pub(super) blackout: Duration,
    pub(super) expiration: Duration,
}

/// The weight of an endpoint by its reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weight {
    weight: f64,
    last_updated: Option<Time>,
    non_empty_since: Option<Time>,
}

impl Weight {
    /// A report gave this weight.
    pub(super) fn update(&mut self, weight: f64, now: Time) {
        // A58-20: the first report since READY or since the expiration begins the blackout period.
        self.non_empty_since.get_or_insert(now);
        self.last_updated = Some(now);
        self.weight = weight;
    }

    /// A58-21: the endpoint became READY, so the blackout period applies again.
    pub(super) fn on_ready(&mut self) {
        self.non_empty_since = None;
    }

    /// The weight to use now; 0 if there is none.
    pub(super) fn usable(&self, now: Time, periods: Periods) -> f64 {
        if self.is_expired(now, periods) {
            return 0.0;
        }
        let is_new = self.non_empty_since.is_none_or(|since| now.since(since) < periods.blackout);
        // A58-03.
        if !periods.blackout.is_zero() && is_new { 0.0 } else { self.weight }
    }

    /// The weight to use now; an expired one begins a new blackout period with its next report.
    pub(super) fn look_up(&mut self, now: Time, periods: Periods) -> f64 {
        // A58-04.
        if self.is_expired(now, periods) {
            self.non_empty_since = None;
        }
        self.usable(now, periods)
    }

    /// Whether there was a report, but too long ago.
    pub(super) fn is_stale(&self, now: Time, periods: Periods) -> bool {
        self.last_updated.is_some() && self.is_expired(now, periods)
    }

    /// The time since the last report.
    pub(super) fn age(&self, now: Time) -> Option<Duration> {
        self.last_updated.map(|at| now.since(at))
    }

    fn is_expired(&self, now: Time, periods: Periods) -> bool {
        self.age(now).is_none_or(|age| age >= periods.expiration)
    }
}
