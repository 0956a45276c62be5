//! gRPC status codes for HTTP and HTTP/2 errors.

/// The gRPC code for a response with an HTTP status but no gRPC status (`http-grpc-status-mapping`).
pub fn code_of_http_status(status: u16) -> i32 {
    match status {
        400 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        429 | 502 | 503 | 504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

/// The gRPC code for a stream reset with an HTTP/2 error code (`PROTOCOL-HTTP2`, "Errors").
pub fn code_of_reset(code: u32) -> i32 {
    match h2::Reason::from(code) {
        h2::Reason::REFUSED_STREAM => UNAVAILABLE,
        h2::Reason::CANCEL => CANCELLED,
        h2::Reason::ENHANCE_YOUR_CALM => RESOURCE_EXHAUSTED,
        h2::Reason::INADEQUATE_SECURITY => PERMISSION_DENIED,
        _ => INTERNAL,
    }
}

pub(super) const OK: i32 = 0;
pub(super) const CANCELLED: i32 = 1;
pub(super) const UNKNOWN: i32 = 2;
pub(super) const PERMISSION_DENIED: i32 = 7;
pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
pub(super) const UNIMPLEMENTED: i32 = 12;
pub(super) const INTERNAL: i32 = 13;
pub(super) const UNAVAILABLE: i32 = 14;
pub(super) const UNAUTHENTICATED: i32 = 16;

/// The name of a code.
pub(super) fn name(code: i32) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    usize::try_from(code).ok().and_then(|code| NAMES.get(code)).copied().unwrap_or("UNKNOWN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_statuses_map_as_the_protocol_says() {
        let table = [(400, 13), (401, 16), (403, 7), (404, 12), (429, 14), (502, 14), (503, 14), (504, 14)];
        for (status, code) in table {
            assert_eq!(code_of_http_status(status), code, "HTTP {status}");
        }
        assert!([200, 204, 302, 418, 500].iter().all(|&status| code_of_http_status(status) == 2));
    }

    #[test]
    fn resets_map_as_the_protocol_says() {
        let table = [13, 13, 13, 13, 13, 13, 13, 14, 1, 13, 13, 8, 7, 13, 13];
        for (reset, code) in (0..).zip(table) {
            assert_eq!(code_of_reset(reset), code, "reset with {reset}");
        }
    }
}
