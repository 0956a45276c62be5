//! Keeps web pages of others from reading the admin port through the browser of someone who can reach it.
//!
//! A page elsewhere can send requests to a loopback port, and by a name that it resolves to 127.0.0.1 it can even read
//! the answers. Such requests carry the foreign name as their Host, or the foreign page as their Origin.

use std::net::IpAddr;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, StatusCode, Version};

/// Lets a request pass unless a browser sent it for somebody else's page.
pub(crate) async fn local_only(request: Request, next: Next) -> Response {
    match refusal(request.version(), request.uri().host(), request.headers()) {
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    }
}

fn refusal(version: Version, uri_host: Option<&str>, headers: &HeaderMap) -> Option<&'static str> {
    let header = |name| headers.get(name).map(|value: &http::HeaderValue| value.to_str().unwrap_or("?"));
    let origin = header(ORIGIN);
    // Browsers speak HTTP/2 only over TLS, which is not served here; gRPC speaks nothing else.
    if version == Version::HTTP_2 && origin.is_none() {
        return None;
    }
    let Some(host) = header(HOST).or(uri_host) else { return Some("the request has no Host") };
    if !is_local(host) {
        return Some("the Host is neither localhost nor an address");
    }
    match origin {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => Some("the Origin is another page"),
        _ => None,
    }
}

/// Whether this is localhost or an address: nobody else can make such a name lead here.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(version: Version, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        refusal(version, None, &headers).is_some()
    }

    #[test]
    fn foreign_hosts_are_refused() {
        for host in ["127.0.0.1:19000", "localhost:19000", "LOCALHOST", "[::1]:19000", "10.1.2.3:80"] {
            assert!(!refused(Version::HTTP_11, host, None), "{host}");
        }
        for host in ["evil.example:19000", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert!(refused(Version::HTTP_11, host, None), "{host}");
        }
    }

    #[test]
    fn foreign_origins_are_refused() {
        let host = "127.0.0.1:19000";
        assert!(!refused(Version::HTTP_11, host, Some("http://127.0.0.1:19000")));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:8080", "https://127.0.0.1:19000"] {
            assert!(refused(Version::HTTP_11, host, Some(origin)), "{origin}");
            assert!(refused(Version::HTTP_2, host, Some(origin)), "{origin}");
        }
    }

    #[test]
    fn grpc_clients_may_use_any_name() {
        assert!(!refused(Version::HTTP_2, "pod-7.example:19000", None));
    }

    #[test]
    fn no_host_at_all_is_refused() {
        assert!(refusal(Version::HTTP_11, None, &HeaderMap::new()).is_some());
    }
}
