//! The conversion of failures to gRPC statuses.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use proxyless_balancer::api::{Code, PickError};
use proxyless_transport::{BodyError, SendError, grpc};
use tonic::Status;
use tonic::metadata::MetadataMap;

/// The status of a failed pick. Codes that only a server may send become INTERNAL (gRFC A54; X-12).
pub(crate) fn of_pick(error: &PickError) -> Status {
    let code = match error.code {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::DataLoss => Code::Internal,
        other => other,
    };
    Status::new(to_tonic(code), error.message.clone())
}

/// The status of a request that was sent and not answered.
pub(crate) fn of_send<B>(error: &SendError<B>, peer: SocketAddr) -> Status {
    let code = match error {
        SendError::Failed { reset: Some(reset), .. } => grpc::code_of_reset(*reset),
        SendError::HeadersTooLarge { .. } => Code::ResourceExhausted,
        // The connection was lost, or servers refused the request too often.
        _ => Code::Unavailable,
    };
    Status::new(to_tonic(code), format!("{peer}: {error}"))
}

/// The code of an interrupted response.
pub(crate) fn code_of_body(error: &BodyError) -> Code {
    error.reset.map_or(Code::Unavailable, grpc::code_of_reset)
}

/// tonic's code of the same number.
pub(crate) fn to_tonic(code: Code) -> tonic::Code {
    tonic::Code::from_i32(code as i32)
}

/// The code of a status.
pub(crate) fn code_of(status: &Status) -> Code {
    Code::from_i32(status.code() as i32)
}

/// The status in headers or trailers, if any.
pub(crate) fn in_headers(headers: &HeaderMap) -> Option<Code> {
    let value = headers.get(Status::GRPC_STATUS)?.to_str().unwrap_or_default();
    Some(value.parse().map_or(Code::Unknown, Code::from_i32))
}

/// Removes details of a status that are not Base64. tonic panics over them, in the caller's task; the rest of the
/// status is kept.
pub(crate) fn remove_unreadable_details(headers: &mut HeaderMap) {
    let is_unreadable = |details: &HeaderValue| decode_binary(details).is_none();
    if headers.get(Status::GRPC_STATUS_DETAILS).is_some_and(is_unreadable) {
        headers.remove(Status::GRPC_STATUS_DETAILS);
    }
}

/// The bytes of binary metadata; `None` if its Base64 is invalid. Decoded as tonic does, with or without padding.
pub(crate) fn decode_binary(value: &HeaderValue) -> Option<Bytes> {
    let mut alone = HeaderMap::with_capacity(1);
    alone.insert("value-bin", value.clone());
    MetadataMap::from_headers(alone).get_bin("value-bin")?.to_bytes().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a54_x_12_codes_of_the_control_plane_do_not_pass_as_the_servers() {
        for (given, seen) in [
            (Code::NotFound, tonic::Code::Internal),
            (Code::InvalidArgument, tonic::Code::Internal),
            (Code::DataLoss, tonic::Code::Internal),
            (Code::Unavailable, tonic::Code::Unavailable),
            (Code::PermissionDenied, tonic::Code::PermissionDenied),
        ] {
            assert_eq!(of_pick(&PickError { code: given, message: String::new() }).code(), seen);
        }
    }

    #[test]
    fn a_status_of_any_bytes_is_a_status() {
        for (value, seen) in [(&b"5"[..], Code::NotFound), (b"x", Code::Unknown), (b"\xff", Code::Unknown)] {
            let value = HeaderValue::from_bytes(value).expect("a value");
            assert_eq!(
                in_headers(&[(http::HeaderName::from_static("grpc-status"), value)].into_iter().collect()),
                Some(seen)
            );
        }
    }

    #[test]
    fn details_stay_if_they_are_base64() {
        for (text, stays) in [("", true), ("CAU", true), ("CAU=", true), ("!!!", false), ("CAU,CAU", false)] {
            let mut headers = HeaderMap::new();
            headers.insert(Status::GRPC_STATUS_DETAILS, HeaderValue::from_static(text));
            headers.insert(Status::GRPC_STATUS, HeaderValue::from_static("5"));
            remove_unreadable_details(&mut headers);
            assert_eq!(headers.contains_key(Status::GRPC_STATUS_DETAILS), stays, "{text}");
            // It panics otherwise.
            let status = Status::from_header_map(&headers).expect("a status");
            assert_eq!(status.code(), tonic::Code::NotFound);
        }
    }
}
