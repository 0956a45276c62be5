//! gRPC status codes for HTTP and HTTP/2 errors.

use proxyless_sans_io::values::Code;

/// The gRPC code for a response with an HTTP status but no gRPC status (`http-grpc-status-mapping`).
pub fn code_of_http_status(status: u16) -> Code {
    match status {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// The gRPC code for a stream reset with an HTTP/2 error code (`PROTOCOL-HTTP2`, "Errors").
pub fn code_of_reset(code: u32) -> Code {
    match h2::Reason::from(code) {
        h2::Reason::REFUSED_STREAM => Code::Unavailable,
        h2::Reason::CANCEL => Code::Cancelled,
        h2::Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        h2::Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_statuses_map_as_the_protocol_says() {
        let table = [(400, 13), (401, 16), (403, 7), (404, 12), (429, 14), (502, 14), (503, 14), (504, 14)];
        for (status, code) in table {
            assert_eq!(code_of_http_status(status) as i32, code, "HTTP {status}");
        }
        assert!([200, 204, 302, 418, 500].iter().all(|&status| code_of_http_status(status) == Code::Unknown));
    }

    #[test]
    fn resets_map_as_the_protocol_says() {
        let table = [13, 13, 13, 13, 13, 13, 13, 14, 1, 13, 13, 8, 7, 13, 13];
        for (reset, code) in (0..).zip(table) {
            assert_eq!(code_of_reset(reset) as i32, code, "reset with {reset}");
        }
    }
}
