//! Deadlines: the caller's `grpc-timeout` and the route's limit (gRFC A31), as one point in time.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

const GRPC_TIMEOUT: &str = "grpc-timeout";

/// When an RPC must be over. Covers queueing, headers and body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// The caller's own deadline, counted from `start`.
    pub(crate) fn of_request(headers: &HeaderMap, start: Instant) -> Self {
        let timeout = headers.get(GRPC_TIMEOUT).and_then(parse);
        Self(timeout.and_then(|timeout| start.checked_add(timeout)))
    }

    /// The earlier of this and `limit` after `start`; a limit of zero is none (A31).
    pub(crate) fn limited(self, start: Instant, limit: Option<Duration>) -> Self {
        let limit = limit.filter(|limit| !limit.is_zero()).and_then(|limit| start.checked_add(limit));
        Self(match (self.0, limit) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        })
    }

    /// When, if ever.
    pub(crate) fn at(self) -> Option<Instant> {
        self.0
    }

    /// Completes when the deadline has come; never, if there is none.
    pub(crate) async fn expired(self) {
        match self.0 {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Tells the server how much time is left.
    pub(crate) fn write(self, headers: &mut HeaderMap, now: Instant) {
        if let Some(at) = self.0 {
            headers.insert(GRPC_TIMEOUT, format(at.saturating_duration_since(now)));
        }
    }
}

/// Reads the header: at most eight digits and a unit.
fn parse(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// Writes the header in the finest unit whose number has at most eight digits, rounded down.
fn format(left: Duration) -> HeaderValue {
    const MAX: u128 = 99_999_999;
    let units = [
        (left.as_nanos(), 'n'),
        (left.as_micros(), 'u'),
        (left.as_millis(), 'm'),
        (left.as_secs().into(), 'S'),
    ];
    let text = units.iter().find(|(amount, _)| *amount <= MAX).map_or_else(
        || format!("{}H", (left.as_secs() / 3600).min(99_999_999)),
        |(amount, unit)| format!("{amount}{unit}"),
    );
    // Digits and one ASCII letter always make a header value.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Duration> {
        parse(&HeaderValue::from_str(text).unwrap())
    }

    #[test]
    fn header_is_read_in_every_unit_and_nonsense_is_no_deadline() {
        assert_eq!(parsed("3H"), Some(Duration::from_secs(10_800)));
        assert_eq!(parsed("2M"), Some(Duration::from_secs(120)));
        assert_eq!(parsed("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parsed("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parsed("7u"), Some(Duration::from_micros(7)));
        assert_eq!(parsed("7n"), Some(Duration::from_nanos(7)));
        for bad in ["", "S", "123456789S", "-1S", "1x", "1.5S", "\u{20}1S"] {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn header_is_written_so_that_it_never_promises_more_time() {
        for nanos in [0u64, 1, 99_999_999, 100_000_000, 123_456_789_123, 10_000_000_000_000_000, u64::MAX] {
            let left = Duration::from_nanos(nanos);
            let read = parse(&format(left)).unwrap();
            assert!(read <= left, "{left:?} became {read:?}");
        }
    }

    #[test]
    fn a31_route_limit_shortens_the_deadline_and_zero_is_no_limit() {
        let start = Instant::now();
        let caller = Deadline(Some(start + Duration::from_secs(5)));
        let limited = |limit: u64| caller.limited(start, Some(Duration::from_secs(limit))).at();
        assert_eq!(limited(2), Some(start + Duration::from_secs(2)));
        assert_eq!(limited(9), Some(start + Duration::from_secs(5)));
        assert_eq!(limited(0), Some(start + Duration::from_secs(5)));
        assert_eq!(Deadline(None).limited(start, None).at(), None);
    }
}
