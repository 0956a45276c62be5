//! Building the requests of an RPC.

use http::header::{TE, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Uri, Version, request};

use super::replay::RequestBody;
use crate::user_agent;

/// Adds the standard gRPC headers, which routes do not see.
pub(super) fn complete(headers: &mut HeaderMap) {
    headers.insert(USER_AGENT, user_agent::header(headers.get(USER_AGENT)));
    headers.insert(TE, HeaderValue::from_static("trailers"));
}

/// The request of one attempt, with the authority from [`authority`].
pub(super) fn build(
    head: &request::Parts,
    scheme: Scheme,
    authority: Authority,
    body: RequestBody,
) -> Request<RequestBody> {
    let mut request = Request::new(body);
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = uri(head, scheme, authority);
    request.headers_mut().clone_from(&head.headers);
    request
}

/// `:authority` is the endpoint's host name if the route says so (A81), or else the origin set by the caller, or else
/// the target's name (A27-62). A name that is not a URI authority cannot be sent: [`Uri`] cannot represent the
/// percent-encoded form that C-core sends.
pub(super) fn authority(
    head: &request::Parts,
    rewritten: Option<&HeaderValue>,
    target: Option<&Authority>,
) -> Authority {
    let rewritten = rewritten.and_then(|value| Authority::try_from(value.as_bytes()).ok());
    let set = rewritten.or_else(|| head.uri.authority().cloned()).or_else(|| target.cloned());
    set.unwrap_or_else(|| Authority::from_static("localhost"))
}

fn uri(head: &request::Parts, scheme: Scheme, authority: Authority) -> Uri {
    let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = Some(authority);
    parts.path_and_query = Some(path);
    // Scheme, authority and path always form a URI.
    Uri::from_parts(parts).unwrap_or_default()
}
