//! The checked-in corpus: its resources are valid. `FUZZ_WRITE_CORPUS=1` rewrites it.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prost::encoding::encode_varint;
use prost::{Message, Name};
use proxyless_testkit::envoy_types::pb::envoy::config::cluster::v3::Cluster;
use proxyless_testkit::envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use proxyless_testkit::envoy_types::pb::envoy::config::core::v3::{HealthStatus, Metadata, TransportSocket};
use proxyless_testkit::envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use proxyless_testkit::envoy_types::pb::envoy::config::endpoint::v3::locality_lb_endpoints::{
    LbConfig, LbEndpointList,
};
use proxyless_testkit::envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use proxyless_testkit::envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use proxyless_testkit::envoy_types::pb::envoy::service::discovery::v3::{
    DiscoveryResponse, Resource as Wrapper,
};
use proxyless_testkit::envoy_types::pb::envoy::service::load_stats::v3::LoadStatsResponse;
use proxyless_testkit::envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use proxyless_testkit::envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};
use proxyless_testkit::envoy_types::pb::google::protobuf::value::Kind;
use proxyless_testkit::envoy_types::pb::google::protobuf::{Any, Struct, UInt32Value, Value};
use proxyless_testkit::resources::*;
use proxyless_testkit::{EDS, Resource};
use proxyless_xds::Gates;
use proxyless_xds::bootstrap::Bootstrap;
use proxyless_xds::orca::OrcaLoadReport;
use proxyless_xds::resource::{DecodeContext, ResourceType, decode};

mod support;

type Seed = (&'static str, &'static str, Vec<u8>);

#[test]
fn the_resources_of_the_corpus_are_good() {
    if std::env::var_os("FUZZ_WRITE_CORPUS").is_some() {
        for (target, name, data) in seeds() {
            let folder = support::path("corpus").join(target);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), data).unwrap();
        }
    }
    let cx = DecodeContext {
        gates: Gates::from_variables(|_| Some("true".into())),
        trusted_xds_server: true,
        certificate_providers: Some(Arc::new(["certs".to_owned()].into())),
        ..DecodeContext::default()
    };
    let types = ["listener", "route_configuration", "cluster", "endpoints", "aggregate_cluster"];
    for (kind, target) in ResourceType::ALL.into_iter().zip(types) {
        for (name, value) in support::corpus(target).unwrap() {
            let any = Any { type_url: kind.type_url().into(), value };
            let value =
                Wrapper { name: "a".into(), resource: Some(any), ..Default::default() }.encode_to_vec();
            let decoded = decode(kind, &Wrapper::type_url(), &value, &cx);
            assert!(decoded.resource.is_ok(), "corpus/{target}/{name}: {:?}", decoded.resource);
        }
    }
    for (name, text) in support::corpus("bootstrap").unwrap() {
        Bootstrap::from_json(std::str::from_utf8(&text).unwrap())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

fn seeds() -> Vec<Seed> {
    [resources(), channels(), streams(), texts(), wires()].concat()
}

/// The numbers are those of the fields in `src/channel.rs`.
fn channels() -> Vec<Seed> {
    let bytes = |number: u64, value: Vec<u8>| {
        let mut field = Vec::new();
        encode_varint(number << 3 | 2, &mut field);
        encode_varint(value.len() as u64, &mut field);
        [field, value].concat()
    };
    let number = |number: u64, value: u64| {
        let mut field = Vec::new();
        encode_varint(number << 3, &mut field);
        encode_varint(value, &mut field);
        field
    };
    let ready = number(6, 0);
    let serves = [number(8, 9), number(10, 1), number(7, 1000)].concat();
    let trouble = [number(6, 1), number(7, 5000), number(6, 3), number(7, 20_000), ready.clone()].concat();
    let manager = connection_manager(simple_route_config("a", "a")).filter(stateful_session("sid"));
    let sessions = bytes(1, listener_with("a", &manager).encode_to_vec());
    let listener = bytes(1, listener("a", simple_route_config("a", "a")).encode_to_vec());
    let cluster = |name: &str| bytes(3, eds_cluster(name).eds_service_name("a").encode_to_vec());
    let served = [cluster("a"), bytes(4, assignment_of_two()), ready.clone(), serves.clone()].concat();
    let leaves = [cluster("b"), cluster("c"), bytes(4, assignment_of_two())].concat();
    let aggregate = bytes(3, aggregate_cluster("a", ["b", "c"]).encode_to_vec());
    let dns = bytes(3, logical_dns_cluster("a", "a.example", 80).encode_to_vec());
    let resolved = [number(9, 2), ready, serves.clone(), number(11, 1), number(9, 0)].concat();
    let end = [trouble, serves].concat();
    vec![
        ("channel", "simple", [&listener[..], &served, &end].concat()),
        ("channel", "sessions", [&sessions[..], &served, &end].concat()),
        ("channel", "aggregate", [&listener[..], &aggregate, &leaves, &end].concat()),
        ("channel", "dns", [&listener[..], &dns, &resolved, &end].concat()),
    ]
}

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 80).into()
}

fn assignment_of_two() -> Vec<u8> {
    priorities("a", [vec![address(1), address(2)], vec![address(3)]]).encode_to_vec()
}

/// An assignment with fields that are only checked for well-formedness.
#[allow(deprecated)] // `load_balancer_endpoints` is decoded all the same
fn rare_endpoints() -> Vec<u8> {
    let key = Value { kind: Some(Kind::StringValue("key".into())) };
    let fields = Struct { fields: [("hash_key".to_owned(), key)].into() };
    let metadata =
        Metadata { filter_metadata: [("envoy.lb".to_owned(), fields)].into(), ..Default::default() };
    let mut keyed = endpoint(address(1));
    keyed.metadata = Some(metadata.clone());
    let mut first = locality("x", [keyed]);
    first.proximity = Some(UInt32Value { value: 3 });
    first.metadata = Some(metadata);
    let list = LbEndpointList { lb_endpoints: vec![endpoint(address(2))] };
    first.lb_config = Some(LbConfig::LoadBalancerEndpoints(list));
    let mut assignment = assignment("a", [first]);
    if let Some(HostIdentifier::Endpoint(named)) = endpoint(address(3)).host_identifier {
        assignment.named_endpoints = [("n".to_owned(), named)].into();
    }
    assignment.encode_to_vec()
}

fn resources() -> Vec<Seed> {
    let routes = route_config(
        "a",
        [
            virtual_host(
                ["a.example", "*.example"],
                [
                    route("a").path("/service/method").header(header("x").exact("1")),
                    weighted_route([("a", 1), ("b", 99)]).regex("/s.*").fraction(10_000),
                    route("b").prefix("/p").ignore_case().header(header("n").range(-1..9).inverted()),
                ],
            ),
            virtual_host(["*"], [route("c").auto_host_rewrite()]),
        ],
    );
    let sessions = connection_manager(simple_route_config("a", "a")).filter(stateful_session_with(
        "session",
        "/service",
        Duration::from_secs(60),
    ));
    let full = eds_cluster("a")
        .eds_service_name("b")
        .lb_policy(wrr_locality(ring_hash(16..=1024)))
        .max_requests(7)
        .outlier_detection(outlier_detection(Duration::from_secs(1), Duration::from_secs(30)))
        .override_host_status([HealthStatus::Healthy, HealthStatus::Draining])
        .report_load();
    let endpoints = assignment(
        "a",
        [
            locality("x", [endpoint(address(1)).weight(3).additional_address(address(9))]).weight(7),
            locality("y", [endpoint(address(2)).health(HealthStatus::Draining)]).priority(1).region("r"),
        ],
    )
    .drops("throttle", 5000);
    let own = endpoint(address(1)).proxy(address(8));
    let proxied = assignment("a", [locality("x", [own, endpoint(address(2))]).proxy(address(9))]);
    let children = aggregate_resource("a", ["b", "c"]);
    let inner = Wrapper::decode(children.value().value.as_slice()).unwrap().resource.unwrap();
    let wrap = |kind: u8, resource: Resource| {
        let wrapper =
            Wrapper { name: "a".into(), resource: Some(resource.value().clone()), ..Default::default() };
        [vec![kind], wrapper.encode_to_vec()].concat()
    };
    vec![
        ("listener", "inline", listener("a", simple_route_config("a", "a")).encode_to_vec()),
        ("listener", "rds", listener("a", "a").encode_to_vec()),
        ("listener", "sessions", listener_with("a", &sessions).encode_to_vec()),
        ("route_configuration", "simple", simple_route_config("a", "a").encode_to_vec()),
        ("route_configuration", "matchers", routes.encode_to_vec()),
        ("cluster", "eds", eds_cluster("a").encode_to_vec()),
        ("cluster", "dns", logical_dns_cluster("a", "a.example", 80).encode_to_vec()),
        ("cluster", "aggregate", aggregate_cluster("a", ["b", "c"]).encode_to_vec()),
        ("cluster", "aggregate_resource", aggregate_resource_cluster("a", "b").encode_to_vec()),
        ("cluster", "full", full.encode_to_vec()),
        ("cluster", "tls", tls_cluster()),
        (
            "cluster",
            "http_connect",
            eds_cluster("a").tls(upstream_tls("certs")).http_connect().encode_to_vec(),
        ),
        ("endpoints", "priorities", assignment_of_two()),
        ("endpoints", "full", endpoints.encode_to_vec()),
        ("endpoints", "rare", rare_endpoints()),
        ("endpoints", "proxies", proxied.encode_to_vec()),
        ("aggregate_cluster", "two", inner.value),
        ("wrapped", "listener", wrap(0, listener("a", "a").into())),
        ("wrapped", "endpoints", wrap(3, endpoints.into())),
        ("wrapped", "aggregate", [vec![4], children.value().value.clone()].concat()),
        ("wrapped", "other_type", wrap(2, simple_route_config("a", "a").into())),
    ]
}

/// The numbers are those of the steps in `src/ads.rs` and `src/lrs.rs`.
#[allow(deprecated)] // A29 uses fields that Envoy has replaced since
fn tls_cluster() -> Vec<u8> {
    let instance = Some(tls::CertificateProviderPluginInstance {
        instance_name: "certs".into(),
        certificate_name: String::new(),
    });
    let matcher = |pattern| StringMatcher { match_pattern: Some(pattern), ignore_case: true };
    let regex = RegexMatcher { regex: "a.*".into(), ..Default::default() };
    let validation = tls::CertificateValidationContext {
        ca_certificate_provider_instance: instance.clone(),
        match_subject_alt_names: vec![
            matcher(MatchPattern::Exact("a.example".into())),
            matcher(MatchPattern::SafeRegex(regex)),
        ],
        ..Default::default()
    };
    let context = tls::UpstreamTlsContext {
        common_tls_context: Some(tls::CommonTlsContext {
            tls_certificate_provider_instance: instance,
            validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
            ..Default::default()
        }),
        sni: "a.example".into(),
        auto_host_sni: true,
        auto_sni_san_validation: true,
        ..Default::default()
    };
    let any = Any { type_url: tls::UpstreamTlsContext::type_url(), value: context.encode_to_vec() };
    let socket = TransportSocket { name: "tls".into(), config_type: Some(ConfigType::TypedConfig(any)) };
    let mut cluster = Cluster::decode(eds_cluster("a").encode_to_vec().as_slice()).unwrap();
    cluster.transport_socket = Some(socket);
    cluster.encode_to_vec()
}

fn streams() -> Vec<Seed> {
    let response = DiscoveryResponse {
        version_info: "1".into(),
        nonce: "1".into(),
        type_url: EDS.into(),
        resources: vec![Any { type_url: EDS.into(), value: assignment_of_two() }],
        ..Default::default()
    };
    let raw = |message: Vec<u8>| [(message.len() as u16).to_be_bytes().to_vec(), message].concat();
    let request = LoadStatsResponse { send_all_clusters: true, ..Default::default() }.encode_to_vec();
    let all = [0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 6];
    let round = [7, 0, 1, 1, 0, 6, 7, 1, 1, 1, 0, 6, 7, 2, 1, 1, 0, 6, 7, 3, 1, 1, 0, 6, 7, 4, 1, 1, 0, 6];
    let bad = [7, 3, 2, 2, 1, 0xc0, 0, 9, 7, 0, 4, 1, 6, 14];
    let begin = [0, 3, 0, 0, 2, 0, 6];
    let reports =
        [0, 0, 0, 1, 2, 0, 0, 0, 2, 0, 1, 0, 2, 0, 0, 3, 6, 8, 10, 9, 5, 0, 0, 14, 8, 2, 0, 1, 4, 14, 8];
    vec![
        ("ads", "all_types", [&[1][..], &all, &round, &bad].concat()),
        ("ads", "whole_response", [&[17][..], &all, &round, &bad, &round].concat()),
        ("ads", "deletion", [&[2][..], &all, &round, &[7, 0, 2, 1, 1, 6, 2, 1, 2, 2, 14]].concat()),
        ("ads", "raw", [&[0][..], &begin, &[10], &raw(response.encode_to_vec()), &[12, 0, 6]].concat()),
        (
            "ads",
            "reconnect",
            [&[4][..], &all, &round, &[11, 14, 14, 6, 11, 1, 14, 15, 0, 4, 255, 255], &round].concat(),
        ),
        ("lrs", "reports", reports.to_vec()),
        ("lrs", "restored", [&reports[..], &[2, 0, 0, 0, 14, 13, 14, 6, 8, 10, 9, 5, 0, 0, 14, 8]].concat()),
        ("lrs", "raw", [&[0, 0, 6, 8, 12][..], &raw(request), &[2, 0, 0, 0, 14, 8, 0, 0, 14]].concat()),
    ]
}

fn texts() -> Vec<Seed> {
    let small = r#"{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]}]}"#;
    let full = r#"{
  "xds_servers": [{
    "server_uri": "dns:///xds.example:443",
    "channel_creds": [{"type": "unknown", "config": {"x": 1}}, {"type": "insecure"}],
    "server_features": ["xds_v3", "ignore_resource_deletion", "trusted_xds_server"]
  }],
  "node": {
    "id": "a", "cluster": "b", "metadata": {"k": [1, null, "v", {"n": 1e3}]},
    "locality": {"region": "r", "zone": "z", "sub_zone": "s"}
  },
  "authorities": {"x": {"client_listener_resource_name_template": "xdstp://x/envoy.config.listener.v3.Listener/%s"}},
  "certificate_providers": {"c": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "/ca"}}},
  "client_default_listener_resource_name_template": "%s"
}"#;
    let secure = r#"{
  "xds_servers": [{
    "server_uri": "xds.example:443",
    "channel_creds": [
      {"type": "google_default"},
      {"type": "tls", "config": {"ca_certificate_file": "/ca", "refresh_interval": "1.5s"}},
      {"type": "insecure"}
    ],
    "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": "/token"}}]
  }],
  "certificate_providers": {
    "a": {"plugin_name": "file_watcher", "config": {"certificate_file": "/cert", "private_key_file": "/key"}},
    "b": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "/ca", "spiffe_trust_bundle_map_file": "/map"}},
    "c": {"plugin_name": "other"}
  }
}"#;
    vec![
        ("bootstrap", "secure", secure.into()),
        ("bootstrap", "small", small.into()),
        ("bootstrap", "full", full.into()),
        ("target_uri", "three_slashes", "xds:///a.example:80".into()),
        ("target_uri", "no_slash", "xds:a".into()),
        ("target_uri", "escapes", "xds:///a%20b%2Fc%25".into()),
        ("target_uri", "authority", "xds://authority/a".into()),
        ("grpc_status", "message", "14\ngone%20away %E2%82%AC".into()),
        ("grpc_status", "ok", "0".into()),
        (
            "connect_response",
            "established",
            "HTTP/1.1 200 Connection established\r\nVia: a\r\n\r\nrest".into(),
        ),
        ("connect_response", "interim", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 407 \r\n\r\n".into()),
    ]
}

fn wires() -> Vec<Seed> {
    let orca = OrcaLoadReport {
        cpu_utilization: 0.5,
        application_utilization: 1.5,
        named_metrics: [("queue".to_owned(), 3.0), ("cache".to_owned(), f64::MAX)].into(),
        ..Default::default()
    };
    let settings = http2_frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]);
    let headers = http2_frame(1, 4, 1, b"\x88\x5f\x10application/grpc");
    let data = http2_frame(0, 0, 1, b"\0\0\0\0\x01x");
    let trailers = http2_frame(1, 5, 1, b"\0\x0bgrpc-status\x010");
    let go_away = http2_frame(7, 0, 0, b"\0\0\0\x01\0\0\0\x0btoo_many_pings");
    let ping = http2_frame(6, 0, 0, b"12345678");
    let reset = http2_frame(3, 0, 1, b"\0\0\0\x07");
    let with = |parts: &[&[u8]]| [&[7][..], &parts.concat()].concat();
    // Names point to that of the question.
    let a = *b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x7f\0\0\x01";
    let aaaa = *b"\xc0\x0c\0\x1c\0\x01\0\0\0\x3c\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01";
    let alias = *b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01b\xc0\x11";
    let soa = *b"\xc0\x11\0\x06\0\x01\0\0\0\x3c\0\x16\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01";
    let dns =
        |counts: [u8; 3], records: &[&[u8]]| [&[1, 0x81, 0x80], &counts[..], &records.concat()].concat();
    vec![
        ("orca", "report", orca.encode_to_vec()),
        ("orca_trailer", "report", [&[1][..], &orca.encode_to_vec()].concat()),
        ("orca_trailer", "no_padding", [&[3][..], &orca.encode_to_vec()].concat()),
        ("orca_trailer", "base64", b"\x00QgwKAWsRAAAAAAAA8D8=".to_vec()),
        ("grpc_trace_bin", "bytes", [&[1, 0, 0][..], &[0x40; 16], &[1], &[0x61; 8], &[2, 1]].concat()),
        ("grpc_trace_bin", "base64", b"\x00AABAQUJDREVGR0hJSktMTU5PAWFiY2RlZmdoAgE".to_vec()),
        ("session_cookie", "headers", b"\x00a=1; sid=MTAuMC4wLjE6ODA7YQ==\nsid=x; b=2".to_vec()),
        ("session_cookie", "one", b"\x0310.0.0.1:80;a".to_vec()),
        ("session_cookie", "two", b"\x1910.0.0.2:80,[::1]:80;b".to_vec()),
        ("session_cookie", "same", b"\x0b10.0.0.1:80,nonsense;other".to_vec()),
        ("frame_tap", "server", with(&[&settings, &headers, &data, &go_away, &settings])),
        ("frame_tap", "client", with(&[&settings, &headers, &reset, &data])),
        ("frame_tap", "tls", with(&[b"\x15\x03\x01\0\x02\x02\x28"])),
        ("grpc_framing", "two", b"\x07\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\0\x01d".to_vec()),
        ("grpc_framing", "compressed", b"\x07\0\0\0\0\x01a\x01\0\0\0\x01b".to_vec()),
        ("grpc_framing", "unfinished", b"\x07\0\0\0\0\x01a\0\0\0\xff\xffb".to_vec()),
        ("dns", "a", dns([1, 0, 0], &[&a])),
        (
            "dns",
            "alias",
            dns([3, 0, 0], &[&alias, b"\x01b\xc0\x11\0\x01\0\x01\0\0\0\x05\0\x04\x0a\0\0\x02", &aaaa]),
        ),
        ("dns", "no_name", [&[1, 0x81, 0x83, 0, 1, 0][..], &soa].concat()),
        ("dns", "truncated", [&[1, 0x83, 0x80, 1, 0, 0][..], &a].concat()),
        ("dns", "whole", b"\0\0\0\x81\x80\0\x01\0\0\0\0\0\0\x04host\x04fuzz\x04test\0\0\x01\0\x01".to_vec()),
        ("http2", "call", with(&[&settings, &headers, &data, &trailers])),
        ("http2", "go_away", with(&[&settings, &headers, &go_away, &data, &trailers])),
        ("http2", "reset", with(&[&settings, &ping, &headers, &reset])),
        ("http2", "http1", with(&[b"HTTP/1.1 400 Bad Request\r\n\r\n"])),
    ]
}

fn http2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
