//! Errors of requests, which say whether the server can have processed the request.

use std::fmt;

use http::Request;
use thiserror::Error;

use crate::body::BodyError;
use crate::go_away::CodeName;
use crate::state::Shared;

/// A request got no response.
#[derive(Error)]
#[non_exhaustive]
pub enum SendError<B> {
    /// No server can have seen all of it. It may be sent elsewhere, without limit.
    #[error("not sent: {reason}")]
    Unsent {
        /// The request, unchanged; `None` if it was already queued on the connection.
        request: Option<Box<Request<B>>>,
        /// The reason.
        reason: String,
    },
    /// The server did not process it: it may be retried once.
    #[error("not processed: {reason}")]
    Refused {
        /// The server's reason.
        reason: String,
    },
    /// The server may have processed it, but the headers of its response were rejected.
    #[error("{reason}")]
    HeadersTooLarge {
        /// The limit.
        reason: String,
    },
    /// The server may have processed it.
    #[error("{reason}")]
    Failed {
        /// The HTTP/2 error code of the reset; `None` if the connection was lost.
        reset: Option<u32>,
        /// A description of the error.
        reason: String,
    },
}

impl<B> SendError<B> {
    pub(crate) fn unsent(request: Request<B>, reason: String) -> Self {
        Self::Unsent { request: Some(Box::new(request)), reason }
    }

    /// Classifies an h2 error of a request on the stream `id`.
    pub(crate) fn of_stream(error: &h2::Error, id: u32, shared: &Shared) -> Self {
        let BodyError { reset, reason } = BodyError::of(error, shared);
        // h2 has one code for headers that are too large and for those that are not HTTP/2.
        if error.is_library() && error.is_reset() && error.reason() == Some(h2::Reason::PROTOCOL_ERROR) {
            if !shared.has_seen_large_headers() {
                return Self::Failed { reset, reason: "the response is malformed".into() };
            }
            let limit = shared.max_header_list_size;
            let reason = format!("the response's headers are larger than {limit} bytes, or malformed");
            return Self::HeadersTooLarge { reason };
        }
        if !error.is_io() && !error.is_remote() {
            // This side reset the stream or closed the connection, and h2 still writes what it has started to write.
            return Self::Failed { reset, reason };
        }
        // Nothing more of it will be written, or a server that has sent GOAWAY will ignore it. A server that resets a
        // stream that it cannot have seen has promised nothing.
        if !error.is_reset() && id > shared.last_written() {
            return Self::Unsent { request: None, reason };
        }
        // RFC 9113, sections 6.8 and 8.7: both guarantee that nothing was processed.
        let above = shared.go_away().is_some_and(|go_away| id > go_away.last_stream_id);
        if above || error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM) {
            return Self::Refused { reason };
        }
        Self::Failed { reset, reason }
    }

    /// A description of the error.
    pub fn reason(&self) -> &str {
        match self {
            Self::Unsent { reason, .. }
            | Self::Refused { reason }
            | Self::HeadersTooLarge { reason }
            | Self::Failed { reason, .. } => reason,
        }
    }
}

impl<B> fmt::Debug for SendError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsent { reason, .. } => {
                f.debug_struct("Unsent").field("reason", reason).finish_non_exhaustive()
            }
            Self::Refused { reason } => f.debug_struct("Refused").field("reason", reason).finish(),
            Self::HeadersTooLarge { reason } => {
                f.debug_struct("HeadersTooLarge").field("reason", reason).finish()
            }
            Self::Failed { reset, reason } => {
                f.debug_struct("Failed").field("reset", reset).field("reason", reason).finish()
            }
        }
    }
}

impl BodyError {
    /// Classifies an h2 error of a stream.
    pub(crate) fn of(error: &h2::Error, shared: &Shared) -> Self {
        let code = error.reason().map(u32::from);
        match code {
            _ if error.is_io() => Self { reset: None, reason: shared.why_lost() },
            Some(code) if error.is_reset() => {
                let peer = if error.is_remote() { "server" } else { "client" };
                let reason = format!("the {peer} reset the stream with {}", CodeName(code));
                Self { reset: Some(code), reason }
            }
            _ if error.is_remote() => Self { reset: None, reason: shared.why_sent_away() },
            _ => Self { reset: None, reason: why_given_up(error, shared.max_header_list_size) },
        }
    }
}

/// The reason why h2 closed a connection; `limit` is that of header lists.
pub(crate) fn why_given_up(error: &h2::Error, limit: u32) -> String {
    let Some(code) = error.reason().filter(|_| error.is_library()) else {
        return error.to_string();
    };
    let text = error.to_string();
    // h2's error codes for this; it uses COMPRESSION_ERROR for nothing else.
    let about_headers = ["header_list_way_too_large", "too_many_continuations"];
    let what =
        if code == h2::Reason::COMPRESSION_ERROR || about_headers.iter().any(|name| text.contains(name)) {
            format!("a header block is far larger than {limit} bytes")
        } else if code == h2::Reason::ENHANCE_YOUR_CALM {
            text
        } else {
            "the server violated HTTP/2".into()
        };
    format!("the client closed the connection with {}: {what}", CodeName(code.into()))
}
