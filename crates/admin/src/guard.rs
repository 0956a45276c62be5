//! Protects the admin port from web pages of other sites in the browser of a user who can reach it.
//!
//! A foreign page can send requests to a loopback port, and through a name that resolves to 127.0.0.1 it can even read
//! the answers. Such requests carry the foreign name as their Host, the foreign page as their Origin, or a
//! Sec-Fetch-Site other than the same origin. Answers that are sent anyway forbid other sites to embed them.

use std::net::IpAddr;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The paths that other pages may link to.
const LINKED: [&str; 2] = ["/", "/proxyless/"];

/// Passes a request, unless a browser sent it on behalf of another site.
pub(crate) async fn local_only(request: Request, next: Next) -> Response {
    let mut response = match refusal(request.version(), request.uri(), request.headers()) {
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    };
    response.headers_mut().insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    response
}

fn refusal(version: Version, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
    let header = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    let origin = header(ORIGIN);
    // Browsers use HTTP/2 only over TLS, which is not served here; gRPC uses nothing else.
    if version == Version::HTTP_2 && origin.is_none() {
        return None;
    }
    let Some(host) = header(HOST).or(uri.host()) else { return Some("the request has no Host") };
    if !is_local(host) {
        return Some("the Host is neither localhost nor an address");
    }
    if origin.is_some_and(|origin| origin.strip_prefix("http://") != Some(host)) {
        return Some("the Origin is another page");
    }
    // Absent outside of browsers; "none" is a user who typed the address.
    let own = matches!(header(SEC_FETCH_SITE), None | Some("same-origin" | "none"));
    let link = header(SEC_FETCH_MODE) == Some("navigate") && LINKED.contains(&uri.path());
    (!own && !link).then_some("another site sent the request")
}

/// Whether this is localhost or an IP address, which a foreign DNS server cannot redirect.
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
        refusal(version, &Uri::from_static("/"), &headers).is_some()
    }

    #[test]
    fn what_other_sites_fetch_is_refused() {
        let refused = |path: &'static str, site: &'static str, mode: &'static str| {
            let headers = [(HOST, "127.0.0.1:19000"), (SEC_FETCH_SITE, site), (SEC_FETCH_MODE, mode)];
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
            refusal(Version::HTTP_11, &Uri::from_static(path), &HeaderMap::from_iter(headers)).is_some()
        };
        for site in ["cross-site", "same-site"] {
            assert!(refused("/proxyless/channels.json", site, "no-cors"), "{site}");
            assert!(refused("/proxyless/channels.json", site, "navigate"), "{site}");
            assert!(refused("/proxyless/", site, "no-cors"), "{site}");
            assert!(!refused("/proxyless/", site, "navigate"), "a link to the page, from {site}");
        }
        assert!(!refused("/proxyless/channels.json", "same-origin", "cors"));
        assert!(!refused("/proxyless/channels.json", "none", "navigate"));
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
        assert!(refusal(Version::HTTP_11, &Uri::from_static("/"), &HeaderMap::new()).is_some());
    }
}
