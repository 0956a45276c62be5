//! The reason for a policy's state, as text.

use std::net::SocketAddr;

use proxyless_sans_io::Time;

use super::ConnectivityState;

/// The cause of a call to a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Update,
    Subchannel,
    /// A change of a subchannel's health by outlier detection.
    Ejection,
    Timer,
    Signal,
    ExitIdle,
}

/// The last state change of a policy.
#[derive(Clone, Copy)]
pub(super) struct Changed {
    pub(super) at: Time,
    pub(super) from: ConnectivityState,
    pub(super) cause: Cause,
}

/// The maximum length of an error that is used as a reason.
const MAX_REASON: usize = 60;

/// The reason for the state `to`; `error` is the error that RPCs fail with, if any.
pub(super) fn reason(
    from: ConnectivityState,
    to: ConnectivityState,
    cause: Cause,
    error: Option<&str>,
) -> String {
    use ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
    if to == TransientFailure
        && let Some(reason) = error.and_then(short)
    {
        return reason;
    }
    let text = match (from, to, cause) {
        (_, _, Cause::Update) => "new configuration",
        (_, TransientFailure, Cause::Ejection) => "ejected",
        (_, TransientFailure, Cause::Timer) => "no connection in time",
        (_, TransientFailure, _) => "connection failed",
        (_, Ready, _) => "connected",
        (Ready, Connecting, _) => "connection lost, reconnecting",
        (TransientFailure, Connecting | Idle, _) => "backoff ended",
        (_, Connecting, Cause::Signal | Cause::ExitIdle) => "an RPC needs it",
        (_, Connecting, _) => "connecting",
        (Ready, Idle, _) => "disconnected",
        (_, Idle, _) => "not needed yet",
    };
    text.to_owned()
}

/// An error without its address and number, if short enough.
fn short(error: &str) -> Option<String> {
    let error = error.rsplit("last error: ").next()?;
    let error = without_address(error).split(" (os error").next()?;
    if error.len() > MAX_REASON {
        return None;
    }
    let mut rest = error.chars();
    let first = rest.next()?;
    let acronym = rest.clone().next().is_some_and(|second| !second.is_lowercase());
    Some(if acronym { error.to_owned() } else { first.to_lowercase().chain(rest).collect() })
}

/// A connection error without its leading address.
pub(super) fn without_address(error: &str) -> &str {
    error.split_once(": ").filter(|(place, _)| is_address(place)).map_or(error, |(_, error)| error)
}

fn is_address(text: &str) -> bool {
    let address = ["ipv4:", "ipv6:"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    address.parse::<SocketAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectivityState::{Connecting, Idle, Ready, TransientFailure};

    #[test]
    fn reasons_are_words_that_an_operator_would_use() {
        let reason = |from, to, cause| reason(from, to, cause, None);
        assert_eq!(reason(Connecting, Ready, Cause::Subchannel), "connected");
        assert_eq!(reason(Connecting, Ready, Cause::Signal), "connected");
        assert_eq!(reason(Ready, Connecting, Cause::Subchannel), "connection lost, reconnecting");
        assert_eq!(reason(TransientFailure, Connecting, Cause::Subchannel), "backoff ended");
        assert_eq!(reason(Idle, Connecting, Cause::Signal), "an RPC needs it");
        assert_eq!(reason(Ready, TransientFailure, Cause::Ejection), "ejected");
        assert_eq!(reason(Ready, TransientFailure, Cause::Update), "new configuration");
        assert_eq!(reason(Ready, Idle, Cause::Subchannel), "disconnected");
    }

    #[test]
    fn a_failure_is_its_error_in_short() {
        let failure = |error| reason(Connecting, TransientFailure, Cause::Subchannel, Some(error));
        let refused = "connections to all backends failing; last error: \
             ipv4:127.0.0.1:46401: Connection refused (os error 111)";
        assert_eq!(failure(refused), "connection refused");
        assert_eq!(failure("[::1]:7: HTTP/2 handshake failed"), "HTTP/2 handshake failed");
        assert_eq!(failure("it has no localities"), "it has no localities");
        assert_eq!(failure(&"long ".repeat(20)), "connection failed");
    }
}
