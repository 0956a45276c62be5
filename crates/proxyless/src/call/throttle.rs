//! Retry throttling (gRFC A6): no retries while failures outweigh successes.

use std::sync::atomic::{AtomicU32, Ordering};

/// Tokens are counted in thousandths, as ratios have three decimal places.
const TOKEN: u32 = 1000;

/// The tokens of a channel.
#[derive(Debug)]
pub(crate) struct RetryThrottle {
    max: u32,
    ratio: u32,
    count: AtomicU32,
}

impl RetryThrottle {
    pub(crate) fn new(max_tokens: u32, token_ratio: f64) -> Self {
        let max = max_tokens.clamp(1, 1000) * TOKEN;
        // A6: decimal places beyond the third are ignored. The cast saturates, and no ratio needs to exceed the
        // maximum.
        let ratio = ((token_ratio * f64::from(TOKEN)) as u32).clamp(1, max);
        Self { max, ratio, count: AtomicU32::new(max) }
    }

    /// Counts an attempt that failed with a retryable code, or whose server forbade retries. Returns whether it may be
    /// retried.
    pub(super) fn failed(&self) -> bool {
        let less = |count: u32| Some(count.saturating_sub(TOKEN));
        // Relaxed, here and below: the count orders nothing else. The update always succeeds.
        let before = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(0);
        before.saturating_sub(TOKEN) > self.max / 2
    }

    /// Counts a call that succeeded.
    pub(super) fn succeeded(&self) {
        // Usually there is nothing to add, and the cache line stays shared.
        let more = |count: u32| (count < self.max).then(|| (count + self.ratio).min(self.max));
        let _ = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_retries_stop_at_half_the_tokens_and_resume_above() {
        let throttle = RetryThrottle::new(10, 0.5);
        assert!((6..=9).all(|_| throttle.failed()), "more than half is left");
        assert!(!throttle.failed(), "half is left");
        throttle.succeeded();
        assert!(!throttle.failed(), "4.5 tokens are left");
        throttle.succeeded();
        assert!(!throttle.failed(), "4 tokens are left");
        (0..5).for_each(|_| throttle.succeeded());
        assert!(throttle.failed(), "5.5 tokens are left");
    }

    #[test]
    fn a6_tokens_stay_between_zero_and_their_maximum() {
        let throttle = RetryThrottle::new(2, 1.0);
        (0..100).for_each(|_| throttle.succeeded());
        assert!(!throttle.failed() && !throttle.failed() && !throttle.failed());
        (0..3).for_each(|_| throttle.succeeded());
        assert!(!throttle.failed(), "there were never more than two");
        for odd in [f64::NAN, -1.0, 0.0, f64::INFINITY] {
            RetryThrottle::new(0, odd).succeeded();
            RetryThrottle::new(u32::MAX, odd).succeeded();
        }
    }
}
