//! A point in virtual time: the driver reads the clock, the cores never do.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since an epoch that the driver chose (its start, in production; zero, in the simulator).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The driver's epoch.
    pub const ZERO: Self = Self(0);

    /// Returns the time `since_epoch` after the driver's epoch.
    #[must_use]
    pub fn from_epoch(since_epoch: Duration) -> Self {
        Self(nanos(since_epoch))
    }

    /// Returns the time elapsed since the driver's epoch.
    #[must_use]
    pub fn since_epoch(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Returns the time elapsed from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates: a deadline beyond the end of time never expires.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.since_epoch().as_secs_f64())
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let end = Time::ZERO + Duration::MAX;
        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Time::ZERO.since(end), Duration::ZERO);
    }
}
