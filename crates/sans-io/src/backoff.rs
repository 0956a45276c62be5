//! gRPC's exponential backoff with jitter (doc/connection-backoff.md): 1 s, times 1.6, to 120 s, plus or minus 20 %.

use std::time::Duration;

use crate::Rng;

/// The parameters of an exponential backoff.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffConfig {
    /// The first delay.
    pub initial: Duration,
    /// The factor from one delay to the next.
    pub multiplier: f64,
    /// The longest delay, before jitter.
    pub max: Duration,
    /// The largest deviation from a delay, as a fraction of it, in either direction.
    pub jitter: f64,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), multiplier: 1.6, max: Duration::from_secs(120), jitter: 0.2 }
    }
}

impl BackoffConfig {
    /// The delay with jitter after `failures` earlier failures. For callers that track many sequences and store only the
    /// failure count; others use a [`Backoff`].
    pub fn delay_after(&self, failures: u32, rng: &mut Rng) -> Duration {
        let mut base = self.initial;
        for _ in 0..failures {
            let next = times(base, self.multiplier).min(self.max);
            if next == base {
                break;
            }
            base = next;
        }
        times(base, 1.0 + self.jitter * (2.0 * rng.unit() - 1.0))
    }
}

/// The product, or the longest duration if that is too long for one: users choose delays.
fn times(delay: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(delay.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// The state of a sequence of failures.
#[derive(Clone, Debug)]
pub struct Backoff {
    config: BackoffConfig,
    failures: u32,
}

impl Backoff {
    /// Creates a backoff that starts with the initial delay.
    #[must_use]
    pub fn new(config: BackoffConfig) -> Self {
        Self { config, failures: 0 }
    }

    /// Returns the delay after one more failure, with jitter.
    pub fn next_delay(&mut self, rng: &mut Rng) -> Duration {
        let delay = self.config.delay_after(self.failures, rng);
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// Starts over with the initial delay, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_by_number_are_those_of_a_sequence() {
        let config = BackoffConfig::default();
        let (mut one, mut other) = (Rng::new(7), Rng::new(7));
        let mut backoff = Backoff::new(config);
        for failures in 0..20 {
            assert_eq!(config.delay_after(failures, &mut one), backoff.next_delay(&mut other));
        }
    }

    #[test]
    fn grows_to_the_cap_within_jitter_and_resets() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let mut rng = Rng::new(1);
        let mut base = 1.0f64;
        for _ in 0..20 {
            let delay = backoff.next_delay(&mut rng).as_secs_f64();
            assert!((base * 0.8..=base * 1.2).contains(&delay), "{delay} around {base}");
            base = (base * 1.6).min(120.0);
        }
        backoff.reset();
        assert!(backoff.next_delay(&mut rng) <= Duration::from_millis(1200));
    }

    #[test]
    fn the_longest_delays_do_not_overflow() {
        let never = BackoffConfig { initial: Duration::MAX, max: Duration::MAX, ..BackoffConfig::default() };
        let mut rng = Rng::new(1);
        for failures in 0..20 {
            assert!(never.delay_after(failures, &mut rng) >= Duration::MAX / 2);
        }
    }
}
