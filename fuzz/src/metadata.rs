//! The headers and trailers of callers and backends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use prost::Message as _;
use proxyless::fuzzing::{Session, orca_trailer as read_trailer};
use proxyless_balancer::api::{ActualHost, BackendMetrics, ClusterId};
use proxyless_balancer::testing::NoWake;
use proxyless_mesh::cluster_claim::ClusterClaim;
use proxyless_mesh::route_table::RouteTable;
use proxyless_otel::{GrpcTraceBinPropagator, MetadataExtractor, MetadataInjector};
use proxyless_sans_io::Rng;
use proxyless_xds::orca::OrcaLoadReport;
use proxyless_xds::resource::{
    ClusterSpecifier, CookieSession, FilterOverrides, HttpFilter, HttpFilterConfig, PathMatcher, Route,
    RouteAction, RouteMatch, VirtualHost, WeightedCluster,
};

/// The trailer with a backend's report (gRFC A51): a byte that says whether the rest is the trailer's value (even) or a
/// report to encode as Base64 (odd), with or without padding.
///
/// Properties: no panic; the same value gives the same report; an encoded report decodes to the same as its bytes.
pub fn orca_trailer(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let text = match mode & 3 {
        1 => BASE64_STANDARD.encode(data).into_bytes(),
        3 => BASE64_STANDARD_NO_PAD.encode(data).into_bytes(),
        _ => data.to_vec(),
    };
    let Ok(value) = HeaderValue::from_bytes(&text) else { return };
    let read = read_trailer(&value);
    // As text, since NaN is not equal to itself.
    let shown = format!("{read:?}");
    assert_eq!(shown, format!("{:?}", read_trailer(&value)), "the second time");
    if mode & 1 == 1 {
        let report = OrcaLoadReport::decode(data).ok();
        let expected = report.map(|report| BackendMetrics {
            cpu_utilization: report.cpu_utilization,
            mem_utilization: report.mem_utilization,
            application_utilization: report.application_utilization,
            rps: report.rps_fractional,
            eps: report.eps,
            request_cost: report.request_cost,
            utilization: report.utilization,
            named_metrics: report.named_metrics,
        });
        assert_eq!(shown, format!("{expected:?}"));
    }
}

/// The header with the trace context of a caller (gRFC A72): a byte that says whether the rest is the header's value (even)
/// or bytes to encode as Base64 (odd), with or without padding.
///
/// Properties: no panic; a context that is read is valid, and is sent as the same bytes; encoded bytes that are not read
/// do not have the layout of A72, or their ids are zeros.
pub fn grpc_trace_bin(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let text = match mode & 3 {
        1 => BASE64_STANDARD.encode(data).into_bytes(),
        3 => BASE64_STANDARD_NO_PAD.encode(data).into_bytes(),
        _ => data.to_vec(),
    };
    let Ok(value) = HeaderValue::from_bytes(&text) else { return };
    let headers = HeaderMap::from_iter([(HeaderName::from_static("grpc-trace-bin"), value)]);
    let propagator = GrpcTraceBinPropagator::new();
    let context = propagator.extract_with_context(&Context::new(), &MetadataExtractor(&headers));
    let mut sent = HeaderMap::new();
    propagator.inject_context(&context, &mut MetadataInjector(&mut sent));
    let is_read = context.has_active_span();
    assert_eq!(is_read, context.span().span_context().is_valid());
    let sent = sent.get("grpc-trace-bin").map(|value| BASE64_STANDARD_NO_PAD.decode(value).expect("Base64"));
    assert_eq!(is_read, sent.is_some());
    if mode & 1 == 1 {
        let has_layout = matches!(data, [0, 0, .., 2, _]) && data.len() == 29 && data[18] == 1;
        let has_ids =
            |data: &[u8]| [&data[2..18], &data[19..27]].iter().all(|id| id.iter().any(|&it| it != 0));
        assert_eq!(is_read, has_layout && has_ids(data));
        assert!(!is_read || sent.as_deref() == Some(data), "{sent:?}");
    }
}

/// The cookies of a call (gRFC A55, A60, A61): a byte of choices, then the lines of its `cookie` headers, or the text
/// inside its session cookie.
///
/// Properties: no panic; the cluster is one of the route's; the addresses of a cookie reach the pick, in order; without
/// a new cookie the call went to the host in its cookie; a new cookie leads to the host of the call, without any other.
pub fn session_cookie(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let table = table();
    let mut headers = HeaderMap::new();
    let is_text = mode & 1 == 1;
    if is_text {
        let text =
            if mode & 2 == 2 { BASE64_STANDARD.encode(data) } else { BASE64_STANDARD_NO_PAD.encode(data) };
        let line = HeaderValue::try_from(format!("other=1; sid={text}; sid=AAAA"));
        headers.append(COOKIE, line.expect("Base64 may stand in a header"));
    } else {
        for line in data.split(|&byte| byte == b'\n') {
            let Ok(line) = HeaderValue::from_bytes(line) else { return };
            headers.append(COOKIE, line);
        }
    }
    let session = begin(&table, &headers);
    let named = session.addresses();
    assert!(["a", "b"].contains(&session.cluster()), "{}", session.cluster());
    if is_text && let Ok(text) = std::str::from_utf8(data) {
        let (list, cluster) = match text.find(';') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, ""),
        };
        let addresses: Vec<SocketAddr> = list.split(',').flat_map(str::parse).collect();
        assert_eq!(*named, *addresses, "{text:?}");
        assert_eq!(session.cluster(), if cluster == "b" { "b" } else { "a" }, "{text:?}");
    }
    let other = |last| SocketAddr::from(([10, 0, 0, last], 80));
    let addresses: Arc<[SocketAddr]> = match mode >> 2 & 3 {
        0 => [other(1)].into(),
        1 => [other(2), other(1)].into(),
        _ if named.is_empty() => [([0u8; 16], 1).into()].into(),
        _ => named.clone(),
    };
    let actual = ActualHost { address: addresses[usize::from(mode >> 4) % addresses.len()], addresses };
    let Some(cookie) = answer(&session, &actual) else {
        assert!(actual.address_list().eq(named.iter().copied()), "{named:?}, and went to {actual:?}");
        return;
    };
    let headers = [(COOKIE, cookie)].into_iter().collect();
    let again = begin(&table, &headers);
    assert!(
        actual.address_list().eq(again.addresses().iter().copied()),
        "{:?}: {actual:?}",
        again.addresses()
    );
    assert_eq!(session.cluster(), again.cluster());
    assert_eq!(answer(&again, &actual), None, "a new cookie for a good one");
}

fn begin(table: &RouteTable, headers: &HeaderMap) -> Session {
    let selection = table.select("/s/m", headers, &mut Rng::new(1)).expect("the route takes every path");
    Session::begin(&selection, "/s/m", headers).expect("the route has sessions")
}

/// The cookie that a caller returns after this response, if it sets one.
fn answer(session: &Session, actual: &ActualHost) -> Option<HeaderValue> {
    let mut headers = HeaderMap::new();
    session.answered(actual, &mut headers);
    let cookie = headers.get(SET_COOKIE)?.to_str().expect("a cookie is text");
    let pair = cookie.split(';').next().expect("a first part");
    Some(HeaderValue::from_str(pair).expect("it came from a header"))
}

/// A route by weight to `a` alone, which also names `b`, with sessions.
fn table() -> RouteTable {
    let session = CookieSession { name: "sid".into(), path: "".into(), ttl: Duration::ZERO };
    let config = HttpFilterConfig::StatefulSession(Some(Arc::new(session)));
    let filters = [HttpFilter { name: "session".into(), config }];
    let clusters = [("a", 1), ("b", 0)].map(|(name, weight)| WeightedCluster {
        name: name.into(),
        weight,
        filter_overrides: FilterOverrides::default(),
    });
    let action = RouteAction {
        cluster: ClusterSpecifier::Weighted(clusters.into()),
        max_stream_duration: None,
        hash_policies: Vec::new(),
        retry_policy: None,
        auto_host_rewrite: false,
    };
    let path = PathMatcher::Prefix { prefix: String::new(), case_sensitive: true };
    let route = Route {
        name: "route".into(),
        matcher: RouteMatch { path, headers: Vec::new(), fraction_per_million: None },
        action: Some(action),
        filter_overrides: FilterOverrides::default(),
    };
    let host = VirtualHost {
        name: "host".into(),
        domains: vec!["*".into()],
        routes: vec![route],
        retry_policy: None,
        filter_overrides: FilterOverrides::default(),
    };
    RouteTable::new(&host, None, &filters, |name| {
        Arc::new(ClusterClaim::new(ClusterId(0), Arc::clone(name), &Arc::default(), Arc::new(NoWake)))
    })
}
