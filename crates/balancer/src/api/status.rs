//! Errors of picks.

use std::sync::Arc;

/// gRPC status codes, with their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the names are gRPC's own
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

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
}
