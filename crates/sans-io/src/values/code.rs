//! The status codes of gRPC.

use std::fmt;

/// The status code of an RPC. `code as i32` is its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// All codes with their names, in the order of their numbers.
const CODES: [(Code, &str); 17] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "CANCELLED"),
    (Code::Unknown, "UNKNOWN"),
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    (Code::NotFound, "NOT_FOUND"),
    (Code::AlreadyExists, "ALREADY_EXISTS"),
    (Code::PermissionDenied, "PERMISSION_DENIED"),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
    (Code::FailedPrecondition, "FAILED_PRECONDITION"),
    (Code::Aborted, "ABORTED"),
    (Code::OutOfRange, "OUT_OF_RANGE"),
    (Code::Unimplemented, "UNIMPLEMENTED"),
    (Code::Internal, "INTERNAL"),
    (Code::Unavailable, "UNAVAILABLE"),
    (Code::DataLoss, "DATA_LOSS"),
    (Code::Unauthenticated, "UNAUTHENTICATED"),
];

impl Code {
    /// The code with this number on the wire; UNKNOWN if there is none.
    #[must_use]
    pub fn from_i32(number: i32) -> Self {
        Self::known(number).unwrap_or(Self::Unknown)
    }

    /// The code with this number on the wire, if there is one.
    #[must_use]
    pub fn known(number: i32) -> Option<Self> {
        let (code, _) = usize::try_from(number).ok().and_then(|number| CODES.get(number))?;
        Some(*code)
    }

    /// The code for a response with an HTTP status but no gRPC status (`http-grpc-status-mapping`).
    #[must_use]
    pub fn from_http_status(status: u32) -> Self {
        match status {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CODES.get(*self as usize).map_or("UNKNOWN", |(_, name)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_numbers() {
        assert!((0..=16).all(|number| Code::from_i32(number) as i32 == number));
        assert!([-1, 17, 99].iter().all(|&number| Code::from_i32(number) == Code::Unknown));
        assert_eq!(Code::Unauthenticated.to_string(), "UNAUTHENTICATED");
        assert_eq!((Code::known(0), Code::known(17)), (Some(Code::Ok), None));
    }

    #[test]
    fn http_statuses_map_as_the_protocol_says() {
        let table = [(400, 13), (401, 16), (403, 7), (404, 12), (429, 14), (502, 14), (503, 14), (504, 14)];
        for (status, code) in table {
            assert_eq!(Code::from_http_status(status) as i32, code, "HTTP {status}");
        }
        let unknown = [200, 204, 302, 418, 500];
        assert!(unknown.iter().all(|&status| Code::from_http_status(status) == Code::Unknown));
    }
}
