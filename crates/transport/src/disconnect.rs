//! The reason for the end of a connection, as the label `grpc.disconnect_error` has it (gRFC A94).

use std::fmt;
use std::io::ErrorKind;

use crate::go_away::CodeName;

/// The first reason for which a connection ended; displayed as the value of the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disconnect {
    /// The server sent GOAWAY with this HTTP/2 error code.
    GoAway(u32),
    /// The server reset the connection.
    Reset,
    /// The peer did not answer, or took no data, for too long. A94: keepalive included.
    TimedOut,
    /// The connection was aborted.
    Aborted,
    /// Another error of the socket, or its end without a GOAWAY: with TLS that is an error, too.
    Socket,
    /// Any other reason, such as a violation of HTTP/2.
    Unknown,
}

impl From<ErrorKind> for Disconnect {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::ConnectionReset => Self::Reset,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::ConnectionAborted => Self::Aborted,
            _ => Self::Socket,
        }
    }
}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GoAway(code) => write!(f, "GOAWAY {}", CodeName(*code)),
            Self::Reset => f.write_str("connection reset"),
            Self::TimedOut => f.write_str("connection timed out"),
            Self::Aborted => f.write_str("connection aborted"),
            Self::Socket => f.write_str("socket error"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a94_labels_are_those_of_the_list() {
        let labels = [
            (Disconnect::GoAway(0), "GOAWAY NO_ERROR"),
            (Disconnect::GoAway(11), "GOAWAY ENHANCE_YOUR_CALM"),
            (ErrorKind::ConnectionReset.into(), "connection reset"),
            (ErrorKind::TimedOut.into(), "connection timed out"),
            (ErrorKind::ConnectionAborted.into(), "connection aborted"),
            (ErrorKind::BrokenPipe.into(), "socket error"),
            (Disconnect::Unknown, "unknown"),
        ];
        for (disconnect, label) in labels {
            assert_eq!(disconnect.to_string(), label);
        }
    }
}
