//! The pauses between restarts after panics.

use std::time::Duration;

use proxyless_sans_io::{BackoffConfig, Rng};

/// A driver that panics at its start panics again, so pauses must soon become long.
const PAUSES: BackoffConfig = BackoffConfig {
    initial: Duration::from_secs(1),
    multiplier: 2.0,
    max: Duration::from_secs(60),
    jitter: 0.2,
};

/// A driver that lived this long did not panic at its start.
const LONG_LIFE: Duration = Duration::from_secs(120);

/// The restarts of one driver.
#[derive(Default)]
pub(super) struct Restarts {
    in_a_row: u32,
}

impl Restarts {
    /// The pause after a panic of a driver that had lived for `lived`.
    pub(super) fn pause(&mut self, lived: Duration, rng: &mut Rng) -> Duration {
        if lived >= LONG_LIFE {
            self.in_a_row = 0;
        }
        let pause = PAUSES.delay_after(self.in_a_row, rng);
        self.in_a_row = self.in_a_row.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_again_after_a_long_life() {
        let (mut restarts, mut rng) = (Restarts::default(), Rng::new(1));
        let mut near = |lived, expected: u128| {
            let pause = restarts.pause(Duration::from_secs(lived), &mut rng).as_millis();
            assert!(
                (expected * 800..=expected * 1200).contains(&pause),
                "{pause} ms, not about {expected} s"
            );
        };
        for expected in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            near(119, expected);
        }
        near(120, 1);
        near(0, 2);
    }
}
