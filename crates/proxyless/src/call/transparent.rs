//! Transparent retries (gRFC A6) of requests that no application has seen.

use std::time::Duration;

use proxyless_sans_io::{BackoffConfig, Rng};

/// The number of refusals after which the attempt has failed, subject to the retry policy. The pauses between them add
/// up to about 16 seconds.
const MOST_REFUSALS: u32 = 10;

/// After the second refusal. Copies of the request were sent, so they must become rare soon.
const AFTER_REFUSAL: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(50),
    multiplier: 2.0,
    max: Duration::from_secs(5),
    jitter: 0.2,
};

/// After a request was not sent for the second time. It cost the servers only their connections.
const AFTER_UNSENT: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(5),
    multiplier: 2.0,
    max: Duration::from_secs(1),
    jitter: 0.2,
};

/// The transparent retries of one RPC. They do not count as attempts of the retry policy, nor for its throttling.
#[derive(Default)]
pub(super) struct Transparent {
    refusals: u32,
    unsent: u32,
}

impl Transparent {
    /// The delay after a server did not process the request (REFUSED_STREAM, or a GOAWAY below the stream); `None` if
    /// it was refused too often.
    pub(super) fn refused(&mut self, rng: &mut Rng) -> Option<Duration> {
        self.refusals += 1;
        // A6: the first refusal is followed by another attempt at once.
        (self.refusals <= MOST_REFUSALS).then(|| pause(self.refusals, &AFTER_REFUSAL, rng))
    }

    /// The delay after a connection was lost before the request was sent.
    pub(super) fn unsent(&mut self, rng: &mut Rng) -> Duration {
        // A6: without limit.
        self.unsent = self.unsent.saturating_add(1);
        pause(self.unsent, &AFTER_UNSENT, rng)
    }
}

/// Zero after the first failure.
fn pause(failures: u32, backoff: &BackoffConfig, rng: &mut Rng) -> Duration {
    failures.checked_sub(2).map_or(Duration::ZERO, |before| backoff.delay_after(before, rng))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_the_first_refusal_is_retried_at_once_and_later_ones_after_growing_pauses() {
        let (mut transparent, mut rng) = (Transparent::default(), Rng::new(1));
        let mut next = || transparent.refused(&mut rng);
        assert_eq!(next(), Some(Duration::ZERO));
        for base in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let pause = next().expect("a pause").as_millis();
            assert!((base * 8 / 10..=base * 12 / 10).contains(&pause), "{pause} around {base}");
        }
        assert_eq!(next(), None);
    }

    #[test]
    fn a6_requests_that_were_never_sent_are_retried_without_limit_but_do_not_spin() {
        let (mut transparent, mut rng) = (Transparent::default(), Rng::new(1));
        assert_eq!(transparent.unsent(&mut rng), Duration::ZERO);
        let total: Duration = (0..1000).map(|_| transparent.unsent(&mut rng)).sum();
        assert!(total > Duration::from_secs(700), "{total:?}");
        assert_eq!(transparent.refused(&mut rng), Some(Duration::ZERO), "it was not refused");
    }
}
