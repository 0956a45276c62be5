//! The retry policy of a route (gRFC A44, A6).

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use proxyless_balancer::api::Code;
use proxyless_sans_io::Rng;
use proxyless_xds::resource::RetryPolicy;

use super::throttle::RetryThrottle;

const PREVIOUS_ATTEMPTS: &str = "grpc-previous-rpc-attempts";
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The attempts of one RPC, limited by its route's policy.
pub(super) struct Retries<'a> {
    policy: Option<Arc<RetryPolicy>>,
    throttle: Option<&'a RetryThrottle>,
    made: u32,
    backoff: Duration,
}

impl<'a> Retries<'a> {
    pub(super) fn new(policy: Option<Arc<RetryPolicy>>, throttle: Option<&'a RetryThrottle>) -> Self {
        let backoff = policy.as_ref().map_or(Duration::ZERO, |policy| policy.base_interval);
        Self { policy, throttle, made: 0, backoff }
    }

    /// The delay before the next attempt, after one that ended with this code and these trailers; `None` if it was the
    /// last.
    pub(super) fn next(&mut self, code: Code, trailers: &HeaderMap, rng: &mut Rng) -> Option<Duration> {
        let policy = self.policy.as_deref()?;
        // A6: the server may set the delay; anything but a number of milliseconds means never.
        let pushback = trailers.get(PUSHBACK).map(milliseconds);
        let is_refused = pushback == Some(None);
        if !is_refused && !policy.codes.contains(&code) {
            return None;
        }
        // A6: throttling counts these failures even if no other attempt would follow.
        let is_throttled = self.throttle.is_some_and(|throttle| !throttle.failed());
        if is_refused || is_throttled || self.made >= policy.num_retries {
            return None;
        }
        self.made += 1;
        if let Some(delay) = pushback.flatten() {
            self.backoff = policy.base_interval;
            return Some(delay);
        }
        let delay = self.backoff.mul_f64(0.8 + 0.4 * rng.unit());
        self.backoff = (self.backoff * 2).min(policy.max_interval);
        Some(delay)
    }

    /// Tells the server the number of previous attempts.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        if self.made > 0 {
            headers.insert(PREVIOUS_ATTEMPTS, HeaderValue::from(self.made));
        }
    }
}

/// A non-negative signed 32-bit number.
fn milliseconds(value: &HeaderValue) -> Option<Duration> {
    let number: i32 = value.to_str().ok()?.parse().ok()?;
    u64::try_from(number).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Arc<RetryPolicy> {
        Arc::new(RetryPolicy {
            codes: vec![Code::Unavailable],
            num_retries: 3,
            base_interval: Duration::from_millis(100),
            max_interval: Duration::from_millis(150),
        })
    }

    #[test]
    fn a44_only_listed_codes_are_retried_up_to_the_limit() {
        let mut rng = Rng::new(1);
        let none = HeaderMap::new();
        assert_eq!(Retries::new(None, None).next(Code::Unavailable, &none, &mut rng), None);
        let mut retries = Retries::new(Some(policy()), None);
        assert_eq!(retries.next(Code::Internal, &none, &mut rng), None);
        for limit in [100, 150, 150] {
            let delay = retries.next(Code::Unavailable, &none, &mut rng).unwrap().as_millis();
            assert!((limit * 8 / 10..=limit * 12 / 10).contains(&delay), "{delay} around {limit}");
        }
        assert_eq!(retries.next(Code::Unavailable, &none, &mut rng), None);
        let mut headers = HeaderMap::new();
        retries.write(&mut headers);
        assert_eq!(headers[PREVIOUS_ATTEMPTS], "3");
    }

    #[test]
    fn a6_pushback_of_the_server_decides() {
        let mut rng = Rng::new(1);
        let mut retries = Retries::new(Some(policy()), None);
        let trailers =
            |text| HeaderMap::from_iter([(PUSHBACK.parse().unwrap(), HeaderValue::from_static(text))]);
        let delay = retries.next(Code::Unavailable, &trailers("7"), &mut rng);
        assert_eq!(delay, Some(Duration::from_millis(7)));
        assert_eq!(retries.next(Code::Unavailable, &trailers("-1"), &mut rng), None);
        assert_eq!(retries.next(Code::Unavailable, &trailers("soon"), &mut rng), None);
    }

    #[test]
    fn a6_throttling_counts_retryable_failures_and_ends_retries() {
        let throttle = RetryThrottle::new(6, 0.1);
        let mut rng = Rng::new(1);
        let none = HeaderMap::new();
        let mut fails_with =
            |code| Retries::new(Some(policy()), Some(&throttle)).next(code, &none, &mut rng).is_some();
        // 6 tokens: after 2 failures 4 are left, after 3 half of them.
        assert!(!fails_with(Code::InvalidArgument), "is not retryable, and does not count");
        assert_eq!([(); 3].map(|()| fails_with(Code::Unavailable)), [true, true, false]);
    }
}
