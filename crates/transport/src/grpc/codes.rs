//! gRPC status codes for HTTP/2 errors.

use proxyless_sans_io::values::Code;

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
    fn resets_map_as_the_protocol_says() {
        let table = [13, 13, 13, 13, 13, 13, 13, 14, 1, 13, 13, 8, 7, 13, 13];
        for (reset, code) in (0..).zip(table) {
            assert_eq!(code_of_reset(reset) as i32, code, "reset with {reset}");
        }
    }
}
