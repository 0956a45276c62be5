//! Classification of a response's head: a gRPC response starts, the call has ended, or it is not gRPC.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use proxyless_balancer::api::Code;
use tokio::runtime::Handle;
use tonic::Status;

use super::status;
use super::timer::Timer;

/// The maximum length of a body that is not gRPC in the error's text.
const MOST_SHOWN: usize = 160;
/// The time to wait for it. It usually arrives with the headers.
const PATIENCE: Duration = Duration::from_millis(100);

/// The class of a response's head.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// Messages or trailers follow.
    Begun,
    /// Trailers-only, with this code.
    Ended(Code),
    /// Not from a gRPC server: a proxy's error page, for example.
    NotGrpc,
}

impl ResponseKind {
    pub(super) fn of(response: &Response<impl Body>) -> Self {
        // A gRPC status takes precedence over the HTTP status (http-grpc-status-mapping).
        if let Some(code) = status::in_headers(response.headers()) {
            return Self::Ended(code);
        }
        let is_grpc = response.status() == StatusCode::OK
            // Headers that end the stream are Trailers-Only, which must have a status.
            && !response.body().is_end_stream()
            // A response without a content-type is accepted, as in C-core.
            && response.headers().get(CONTENT_TYPE).is_none_or(is_grpc_type);
        if is_grpc { Self::Begun } else { Self::NotGrpc }
    }
}

/// PROTOCOL-HTTP2: `application/grpc`, optionally with a suffix (`+proto`) or parameters.
fn is_grpc_type(value: &HeaderValue) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let value = value.as_bytes();
    let begins = value.get(..GRPC.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(GRPC));
    begins && matches!(value.get(GRPC.len()), None | Some(b'+' | b';' | b' '))
}

/// The status of a response that is not gRPC, by its HTTP status (http-grpc-status-mapping).
pub(super) fn status_of_http(response: &Response<impl Body>, peer: SocketAddr, beginning: &[u8]) -> Status {
    let http = response.status();
    let mut text = format!("{peer}: not a gRPC response: HTTP status {http}");
    match response.headers().get(CONTENT_TYPE) {
        Some(kind) if !is_grpc_type(kind) => {
            text.push_str(&format!(", content-type {}", shown(kind.as_bytes())))
        }
        _ => text.push_str(" without grpc-status"),
    }
    if !beginning.is_empty() {
        text.push_str(&format!(", body begins with {}", shown(beginning)));
    }
    Status::new(status::to_tonic(Code::from_http_status(http.as_u16().into())), text)
}

/// Quoted, without control characters, and truncated.
fn shown(bytes: &[u8]) -> String {
    let bytes = bytes.get(..MOST_SHOWN).unwrap_or(bytes);
    format!("{:?}", String::from_utf8_lossy(bytes).trim_end_matches(char::REPLACEMENT_CHARACTER))
}

/// Reads the first bytes of a body, if they arrive soon.
pub(super) async fn read_beginning<B>(body: &mut B, beginning: &mut Vec<u8>, runtime: &Handle)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut patience = Timer::after(PATIENCE, runtime);
    while beginning.len() < MOST_SHOWN {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            _ = Pin::new(&mut patience) => return,
        };
        let Some(Ok(data)) = frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()))
        else {
            return;
        };
        let room = MOST_SHOWN - beginning.len();
        beginning.extend_from_slice(data.get(..room).unwrap_or(&data));
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Empty, Full};

    use super::*;

    fn response(http: u16, headers: &[(&'static str, &'static str)]) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from("body"));
        *response.status_mut() = StatusCode::from_u16(http).unwrap();
        for (name, value) in headers {
            response.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        response
    }

    #[test]
    fn heads_of_responses_are_told_apart() {
        let grpc = ("content-type", "application/grpc");
        let html = ("content-type", "text/html; charset=utf-8");
        for (http, headers, expected) in [
            (200, vec![grpc], ResponseKind::Begun),
            (200, vec![("content-type", "application/grpc+proto")], ResponseKind::Begun),
            (200, vec![("content-type", "Application/gRPC;x=y")], ResponseKind::Begun),
            (200, vec![], ResponseKind::Begun),
            (200, vec![("content-type", "application/grpc-web")], ResponseKind::NotGrpc),
            (200, vec![("content-type", "application/json")], ResponseKind::NotGrpc),
            (200, vec![html], ResponseKind::NotGrpc),
            (503, vec![grpc], ResponseKind::NotGrpc),
            (503, vec![html], ResponseKind::NotGrpc),
            (200, vec![grpc, ("grpc-status", "5")], ResponseKind::Ended(Code::NotFound)),
            (503, vec![html, ("grpc-status", "5")], ResponseKind::Ended(Code::NotFound)),
        ] {
            assert_eq!(ResponseKind::of(&response(http, &headers)), expected, "{http} {headers:?}");
        }
        let no_body = response(200, &[grpc]).map(|_| Empty::<Bytes>::new());
        assert_eq!(ResponseKind::of(&no_body), ResponseKind::NotGrpc);
    }

    #[test]
    fn the_text_has_the_address_the_type_and_the_first_bytes() {
        let peer = ([10, 0, 0, 1], 80).into();
        let status =
            status_of_http(&response(503, &[("content-type", "text/html")]), peer, b"<html>\n\xe2\x82");
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert_eq!(
            status.message(),
            "10.0.0.1:80: not a gRPC response: HTTP status 503 Service Unavailable, content-type \"text/html\", \
             body begins with \"<html>\\n\""
        );
        let status = status_of_http(&response(200, &[("content-type", "application/grpc")]), peer, b"");
        assert_eq!(status.code(), tonic::Code::Unknown);
        assert_eq!(
            status.message(),
            "10.0.0.1:80: not a gRPC response: HTTP status 200 OK without grpc-status"
        );
    }

    #[tokio::test]
    async fn no_more_of_a_body_is_read_than_is_shown() {
        let mut beginning = Vec::new();
        let mut body = Full::new(Bytes::from(vec![b'x'; 1 << 20]));
        read_beginning(&mut body, &mut beginning, &Handle::current()).await;
        assert_eq!(beginning, [b'x'; MOST_SHOWN]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let mut beginning = Vec::new();
        let stream =
            http_body_util::StreamBody::new(tokio_stream::pending::<Result<_, std::convert::Infallible>>());
        let mut body = stream;
        read_beginning(&mut body, &mut beginning, &Handle::current()).await;
        assert!(beginning.is_empty());
    }
}
