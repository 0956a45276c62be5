//! Deadlines: the caller's `grpc-timeout` and the route's limit (gRFC A31), as one point in time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::timer::{End, Timer};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The deadline of an RPC. Covers queueing, headers and body, with one timer.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    /// Whether it is that of the caller's header.
    is_callers: bool,
    /// Created by the first wait.
    timer: Option<Timer>,
}

impl Deadline {
    /// The caller's deadline, counted from `start`.
    pub(crate) fn of_request(headers: &HeaderMap, start: Instant) -> Self {
        let timeout = headers.get(GRPC_TIMEOUT).and_then(parse);
        let at = timeout.and_then(|timeout| start.checked_add(timeout));
        Self { at, is_callers: true, timer: None }
    }

    /// Limits it to `limit` after `start`; a limit of zero is none (A31).
    pub(crate) fn limit(&mut self, start: Instant, limit: Option<Duration>) {
        let limit = limit.filter(|limit| !limit.is_zero()).and_then(|limit| start.checked_add(limit));
        if let Some(limit) = limit.filter(|&limit| self.at.is_none_or(|at| limit < at)) {
            *self = Self { at: Some(limit), is_callers: false, timer: None };
        }
    }

    /// Whether it has passed.
    pub(crate) fn is_past(&self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }

    /// Creates the timer, if there is a deadline and no timer yet.
    pub(crate) fn arm(&mut self, runtime: &Handle) {
        if let Some(at) = self.at.filter(|_| self.timer.is_none()) {
            self.timer = Some(Timer::at(at, runtime));
        }
    }

    /// Ready when the deadline has passed; never, if there is none or it is not [armed](Self::arm).
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        match ready!(Pin::new(timer).poll(cx)) {
            End::Elapsed => Poll::Ready(()),
            // The channel's connections end with its runtime, and so does every wait of an RPC.
            End::Lost => Poll::Pending,
        }
    }

    /// The result of the event; `None` if the deadline passes first.
    pub(crate) async fn bound<T>(
        &mut self,
        mut event: Pin<&mut impl Future<Output = T>>,
        runtime: &Handle,
    ) -> Option<T> {
        poll_fn(|cx| match event.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => {
                self.arm(runtime);
                self.poll_expired(cx).map(|()| None)
            }
        })
        .await
    }

    /// Tells the server how much time is left. The caller's header is unchanged until the RPC has waited.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if let Some(at) = self.at.filter(|_| !self.is_callers || self.timer.is_some()) {
            headers.insert(GRPC_TIMEOUT, format(at.saturating_duration_since(Instant::now())));
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
    use std::pin::pin;

    use super::*;

    fn parsed(text: &str) -> Option<Duration> {
        parse(&HeaderValue::from_str(text).unwrap())
    }

    #[test]
    fn header_is_read_in_every_unit_and_invalid_values_are_ignored() {
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
    fn a31_route_limit_shortens_the_deadline_and_zero_means_unlimited() {
        let start = Instant::now();
        let headers = |timeout| HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(timeout))]);
        let limited = |headers: &HeaderMap, limit: Option<u64>| {
            let mut deadline = Deadline::of_request(headers, start);
            deadline.limit(start, limit.map(Duration::from_secs));
            deadline.at.map(|at| at - start)
        };
        let caller = headers("5S");
        assert_eq!(limited(&caller, Some(2)), Some(Duration::from_secs(2)));
        assert_eq!(limited(&caller, Some(9)), Some(Duration::from_secs(5)));
        assert_eq!(limited(&caller, Some(0)), Some(Duration::from_secs(5)));
        assert_eq!(limited(&HeaderMap::new(), Some(9)), Some(Duration::from_secs(9)));
        assert_eq!(limited(&HeaderMap::new(), None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn header_is_rewritten_once_it_differs_from_the_callers() {
        let start = Instant::now();
        let mut headers = HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static("5S"))]);
        let mut deadline = Deadline::of_request(&headers, start);
        deadline.write(&mut headers);
        assert_eq!(headers[GRPC_TIMEOUT], "5S");
        let second = pin!(tokio::time::sleep(Duration::from_secs(1)));
        assert_eq!(deadline.bound(second, &Handle::current()).await, Some(()));
        deadline.write(&mut headers);
        assert_eq!(parse(&headers[GRPC_TIMEOUT]), Some(start + Duration::from_secs(5) - Instant::now()));
        deadline.limit(start, Some(Duration::from_secs(3)));
        deadline.write(&mut headers);
        assert_eq!(parse(&headers[GRPC_TIMEOUT]), Some(start + Duration::from_secs(3) - Instant::now()));
        assert!(!deadline.is_past());
        assert_eq!(deadline.bound(pin!(std::future::pending::<()>()), &Handle::current()).await, None);
        assert!(
            deadline.is_past() && start.elapsed() >= Duration::from_secs(3),
            "the timer of the old limit"
        );
        assert!(start.elapsed() < Duration::from_secs(4));
    }
}
