//! Errors of picks.

use std::sync::Arc;

use proxyless_sans_io::values::Code;

/// The status of an RPC whose pick failed or was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickError {
    /// The status code. The data path restricts it as gRFC A54 says.
    pub code: Code,
    /// The message in the RPC's error.
    pub message: String,
}

impl PickError {
    /// Creates an UNAVAILABLE error, shared so that picks only clone a pointer.
    pub fn unavailable(message: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { code: Code::Unavailable, message: message.into() })
    }

    /// Like [`Self::unavailable`]. A74: the resolution note of the update is part of the error of RPCs.
    pub fn with_note(message: impl Into<String>, note: Option<&Arc<str>>) -> Arc<Self> {
        let message = message.into();
        Self::unavailable(match note {
            Some(note) => format!("{message} ({note})"),
            None => message,
        })
    }
}
