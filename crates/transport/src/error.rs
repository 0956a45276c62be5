//! How requests fail, and which failures leave it certain that the server did nothing.

use std::error::Error;
use std::fmt;

use http::Request;

use crate::body::BodyError;
use crate::go_away::CodeName;
use crate::state::Shared;

/// A request got no response.
#[non_exhaustive]
pub enum SendError<B> {
    /// Nothing of it left this process. It may be sent anywhere else, without limit.
    Unsent {
        /// The request, untouched.
        request: Box<Request<B>>,
        /// Why it was not sent.
        reason: String,
    },
    /// The server did not process it: it may be sent once more.
    Refused {
        /// What the server said.
        reason: String,
    },
    /// The server may have processed it.
    Failed {
        /// The HTTP/2 error code with which the stream was reset; `None` if the whole connection was lost.
        reset: Option<u32>,
        /// What happened.
        reason: String,
    },
}

impl<B> SendError<B> {
    pub(crate) fn unsent(request: Request<B>, reason: String) -> Self {
        Self::Unsent { request: Box::new(request), reason }
    }

    /// What happened.
    pub fn reason(&self) -> &str {
        match self {
            Self::Unsent { reason, .. } | Self::Refused { reason } | Self::Failed { reason, .. } => reason,
        }
    }
}

impl<B> fmt::Display for SendError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsent { reason, .. } => write!(f, "not sent: {reason}"),
            Self::Refused { reason } => write!(f, "not processed: {reason}"),
            Self::Failed { reason, .. } => f.write_str(reason),
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
            Self::Failed { reset, reason } => {
                f.debug_struct("Failed").field("reset", reset).field("reason", reason).finish()
            }
        }
    }
}

impl<B> Error for SendError<B> {}

/// What an error of hyper means for the stream it struck.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server did not and will not look at it.
    Unprocessed {
        reset: Option<u32>,
        reason: String,
    },
    Failed {
        reset: Option<u32>,
        reason: String,
    },
}

impl Failure {
    pub(crate) fn of(error: &hyper::Error, shared: &Shared) -> Self {
        match source::<h2::Error>(error) {
            Some(error) if !error.is_io() => Self::of_h2(error),
            // hyper dropped the request while it waited for h2 to open a stream, so nothing was written. An abort
            // looks the same, but there something may have been.
            _ if error.is_user() && !shared.is_aborted() => {
                Self::Unprocessed { reset: None, reason: shared.why_lost(error) }
            }
            _ => Self::Failed { reset: None, reason: shared.why_lost(error) },
        }
    }

    pub(crate) fn reset_by_server(code: h2::Reason) -> BodyError {
        let code = u32::from(code);
        BodyError {
            reset: Some(code),
            reason: format!("the server reset the stream with {}", CodeName(code)),
        }
    }

    fn of_h2(error: &h2::Error) -> Self {
        let code = error.reason();
        if error.is_go_away() {
            let reason = error.to_string();
            // h2 gives a GOAWAY of the server to those streams only that it does not cover, and to those never sent.
            return if error.is_remote() {
                Self::Unprocessed { reset: None, reason }
            } else {
                Self::Failed { reset: None, reason }
            };
        }
        match code {
            Some(code) if error.is_reset() && error.is_remote() => {
                let BodyError { reset, reason } = Self::reset_by_server(code);
                // RFC 9113, section 8.7: REFUSED_STREAM promises that nothing was processed.
                if code == h2::Reason::REFUSED_STREAM {
                    Self::Unprocessed { reset, reason }
                } else {
                    Self::Failed { reset, reason }
                }
            }
            Some(code) => {
                let code = u32::from(code);
                let reason = format!("the client reset the stream with {}", CodeName(code));
                Self::Failed { reset: Some(code), reason }
            }
            None => Self::Failed { reset: None, reason: error.to_string() },
        }
    }
}

/// The first error of type `E` below `error`.
fn source<E: Error + 'static>(error: &hyper::Error) -> Option<&E> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// An error with all its sources, outermost first.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push_str(": ");
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}
