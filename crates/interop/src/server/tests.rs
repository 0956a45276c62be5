//! The server, as clients see it.

use std::net::Ipv4Addr;
use std::time::Duration;

use clap::Parser;
use proxyless::bootstrap::IdentityFiles;
use proxyless_testkit::Backend;
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
use tokio_stream::StreamExt;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::behavior::{Behavior, requested};
use super::security::ServerCertificates;
use super::*;
use crate::proto::test_service_client::TestServiceClient;
use crate::proto::xds_update_health_service_client::XdsUpdateHealthServiceClient;
use crate::proto::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, StreamingInputCallRequest,
    StreamingOutputCallRequest,
};

fn identity() -> Identity {
    Identity { server_id: "id".into(), hostname: "host-a".into() }
}

async fn start_backend() -> (Backend, TestServiceClient<Channel>) {
    let backend = Backend::serve("unused", test_routes(identity())).await.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", backend.address())).unwrap();
    (backend, TestServiceClient::new(endpoint.connect().await.unwrap()))
}

fn with_behavior(values: &[&str]) -> Request<Empty> {
    let mut request = Request::new(Empty {});
    for value in values {
        request.metadata_mut().append("rpc-behavior", value.parse().unwrap());
    }
    request
}

fn behaviors(value: &str) -> Result<Vec<Behavior>, Status> {
    let mut metadata = MetadataMap::new();
    metadata.insert("rpc-behavior", value.parse().unwrap());
    requested(&metadata, "host-a")
}

#[test]
fn behaviors_are_read_in_order() {
    let all = behaviors("sleep-2,succeed-on-retry-attempt-1,error-code-5,keep-open").unwrap();
    assert_eq!(
        all,
        [
            Behavior::Sleep(Duration::from_secs(2)),
            Behavior::SucceedOnAttempt(1),
            Behavior::Fail(Code::NotFound),
            Behavior::KeepOpen,
        ]
    );
}

#[test]
fn a_behavior_may_be_for_one_host_only() {
    assert_eq!(behaviors("hostname=host-b error-code-5").unwrap(), []);
    let both = behaviors("hostname=host-a error-code-5,sleep-1").unwrap();
    assert_eq!(both, [Behavior::Fail(Code::NotFound), Behavior::Sleep(Duration::from_secs(1))]);
}

#[test]
fn a_behavior_that_nobody_knows_is_an_error() {
    for unknown in ["dance", "sleep-long", "error-code-", ""] {
        assert_eq!(behaviors(unknown).unwrap_err().code(), Code::InvalidArgument, "{unknown:?}");
    }
}

#[tokio::test]
async fn unary_calls_name_the_server_and_carry_payload() {
    let (_backend, mut client) = start_backend().await;
    let request = SimpleRequest { response_size: 5, fill_server_id: true, ..Default::default() };
    let response = client.unary_call(request).await.unwrap().into_inner();
    assert_eq!((response.server_id.as_str(), response.hostname.as_str()), ("id", "host-a"));
    assert_eq!(response.payload.unwrap().body.len(), 5);

    let status = EchoStatus { code: Code::DataLoss as i32, message: "as asked".into() };
    let request = SimpleRequest { response_status: Some(status), ..Default::default() };
    let status = client.unary_call(request).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::DataLoss, "as asked"));

    let request = SimpleRequest { response_size: -1, ..Default::default() };
    assert_eq!(client.unary_call(request).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn the_behavior_header_is_obeyed() {
    let (backend, mut client) = start_backend().await;
    let status = client.empty_call(with_behavior(&["error-code-8"])).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    client.empty_call(with_behavior(&["hostname=other error-code-8"])).await.unwrap();
    client.empty_call(with_behavior(&["succeed-on-retry-attempt-0", "error-code-8"])).await.unwrap();
    let status =
        client.empty_call(with_behavior(&["succeed-on-retry-attempt-1,error-code-8"])).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);

    let mut other = client.clone();
    let open = tokio::spawn(async move { other.empty_call(with_behavior(&["keep-open"])).await });
    backend.wait_in_flight(1).await.unwrap();
    assert!(!open.is_finished());
    open.abort();
    backend.wait_in_flight(0).await.unwrap();
}

#[tokio::test]
async fn streams_carry_the_requested_messages() {
    let (_backend, mut client) = start_backend().await;
    let sizes = |sizes: &[i32]| StreamingOutputCallRequest {
        response_parameters: sizes
            .iter()
            .map(|size| ResponseParameters { size: *size, interval_us: 1, ..Default::default() })
            .collect(),
        ..Default::default()
    };
    let lengths = |response: tonic::Response<tonic::Streaming<_>>| async {
        let stream = response.into_inner();
        let length = |r: Result<crate::proto::StreamingOutputCallResponse, Status>| {
            r.unwrap().payload.unwrap().body.len()
        };
        stream.map(length).collect::<Vec<_>>().await
    };
    let output = client.streaming_output_call(sizes(&[3, 1])).await.unwrap();
    assert_eq!(output.metadata().get("hostname").unwrap(), "host-a");
    assert_eq!(lengths(output).await, [3, 1]);

    let duplex = client.full_duplex_call(tokio_stream::iter([sizes(&[1, 2]), sizes(&[]), sizes(&[4])]));
    assert_eq!(lengths(duplex.await.unwrap()).await, [1, 2, 4]);

    let part = |size| StreamingInputCallRequest {
        payload: Some(Payload { body: vec![0; size], ..Default::default() }),
        ..Default::default()
    };
    let input = client.streaming_input_call(tokio_stream::iter([part(2), part(5)])).await.unwrap();
    assert_eq!(input.into_inner().aggregated_payload_size, 7);

    let mut failing = sizes(&[1]);
    failing.response_status = Some(EchoStatus { code: Code::Aborted as i32, message: String::new() });
    let mut stream = client.streaming_output_call(failing).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Aborted);
}

/// The service without any transport, whose own timers would interfere.
fn local_client() -> TestServiceClient<Envelope<TestServiceServer<TestServer>>> {
    TestServiceClient::new(test_service(identity()))
}

#[tokio::test(start_paused = true)]
async fn deadlines_end_calls_with_deadline_exceeded() {
    let mut client = local_client();
    let mut request = with_behavior(&["keep-open"]);
    request.set_timeout(Duration::from_secs(3));
    let begin = tokio::time::Instant::now();
    let status = client.empty_call(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let waited = begin.elapsed();
    // Not after tonic's timer, which answers CANCELLED.
    assert!(waited < Duration::from_secs(3) && waited > Duration::from_millis(2900), "{waited:?}");

    // A response that has begun ends too.
    let parameters = |seconds| ResponseParameters { interval_us: seconds * 1_000_000, ..Default::default() };
    let message = StreamingOutputCallRequest {
        response_parameters: vec![parameters(1), parameters(60)],
        ..Default::default()
    };
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(3));
    let mut stream = client.streaming_output_call(request).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert_eq!(stream.message().await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn custom_metadata_is_echoed() {
    const INITIAL: &str = "x-grpc-test-echo-initial";
    const TRAILING: &str = "x-grpc-test-echo-trailing-bin";
    let (_backend, mut client) = start_backend().await;
    let add = |metadata: &mut MetadataMap| {
        metadata.insert(INITIAL, "test_initial_metadata_value".parse().unwrap());
        metadata.insert_bin(TRAILING, tonic::metadata::MetadataValue::from_bytes(b"\xab\xab\xab"));
    };
    let mut request = Request::new(SimpleRequest { response_size: 1, ..Default::default() });
    add(request.metadata_mut());
    let response = client.unary_call(request).await.unwrap();
    assert_eq!(response.metadata().get(INITIAL).unwrap(), "test_initial_metadata_value");
    // tonic puts the trailers of a unary response beside its headers.
    assert_eq!(response.metadata().get_bin(TRAILING).unwrap().to_bytes().unwrap()[..], *b"\xab\xab\xab");

    let mut request = Request::new(tokio_stream::iter([StreamingOutputCallRequest::default()]));
    add(request.metadata_mut());
    let response = client.full_duplex_call(request).await.unwrap();
    assert_eq!(response.metadata().get(INITIAL).unwrap(), "test_initial_metadata_value");
    assert!(response.metadata().get_bin(TRAILING).is_none());
    let mut stream = response.into_inner();
    assert!(stream.message().await.unwrap().is_none());
    let trailers = stream.trailers().await.unwrap().unwrap();
    assert_eq!(trailers.get_bin(TRAILING).unwrap().to_bytes().unwrap()[..], *b"\xab\xab\xab");

    // A failure has only trailers.
    let mut request = with_behavior(&["error-code-8"]);
    add(request.metadata_mut());
    let status = client.empty_call(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.metadata().get_bin(TRAILING).is_some());
}

#[test]
fn unsupported_flags_are_named() {
    let refusal = |flag: &str| ServerFlags::try_parse_from(["server", flag]).unwrap_err().to_string();
    let csm = refusal("--enable_csm_observability=true");
    assert!(csm.contains("--enable_csm_observability=true is not supported"), "{csm}");
    assert!(refusal("--address_type=IPV5").contains("IPV4_IPV6"));
    assert!(refusal("--metrics_mode=IN_BAND").contains("NONE"));
    let flags = ServerFlags::try_parse_from(["server", "--address_type=IPV4", "--server_id", "me"]).unwrap();
    assert_eq!((flags.address_type, flags.server_id.as_str()), (AddressType::Ipv4, "me"));
}

fn refusal(arguments: &[&str], bootstrap: &str) -> String {
    let arguments = [&["server"], arguments].concat();
    let flags = ServerFlags::try_parse_from(arguments).unwrap();
    Security::from_flags(&flags, || Bootstrap::from_json(bootstrap)).unwrap_err().to_string()
}

#[test]
fn secure_mode_names_all_problems_of_the_flags() {
    let insecure = refusal(&["--certificate_file=a", "--certificate_provider=b"], "{}");
    assert_eq!(
        insecure,
        "--certificate_file requires --secure_mode=true; --certificate_provider requires --secure_mode=true"
    );
    let port = "--secure_mode=true requires a --maintenance_port other than --port";
    assert_eq!(refusal(&["--secure_mode=true"], "{}"), port);
    let both =
        refusal(&["--secure_mode", "--port=1", "--maintenance_port=1", "--ca_certificate_file=c"], "{}");
    let pair = "is missing: --certificate_file and --private_key_file belong together";
    assert_eq!(both, format!("{port}; --certificate_file {pair}; --private_key_file {pair}"));
    let mixed = ["--secure_mode", "--maintenance_port=1", "--certificate_provider=x", "--certificate_file=a"];
    assert_eq!(refusal(&mixed, "{}"), "--certificate_file and --certificate_provider exclude each other");
}

#[test]
fn secure_mode_names_the_problem_of_the_bootstrap() {
    let bootstrap = |providers: serde_json::Value| {
        let server = serde_json::json!({"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]});
        serde_json::json!({"xds_servers": [server], "certificate_providers": providers}).to_string()
    };
    let identity = serde_json::json!({"plugin_name": "file_watcher",
        "config": {"certificate_file": "/none/c", "private_key_file": "/none/k"}});
    let roots =
        serde_json::json!({"plugin_name": "file_watcher", "config": {"ca_certificate_file": "/none/r"}});
    let secure = ["--secure_mode=true", "--maintenance_port=1"];
    let named = ["--secure_mode=true", "--maintenance_port=1", "--certificate_provider=x"];

    assert!(refusal(&secure, "{ nonsense").contains("JSON"), "{}", refusal(&secure, "{ nonsense"));
    let none = refusal(&secure, &bootstrap(serde_json::json!({"r": roots})));
    assert!(none.contains("requires a file_watcher with certificate_file"), "{none}");
    let several = refusal(&secure, &bootstrap(serde_json::json!({"a": identity, "b": identity})));
    assert!(several.contains("(a, b): --certificate_provider must name one"), "{several}");
    let unknown = refusal(&named, &bootstrap(serde_json::json!({"a": identity})));
    assert!(unknown.contains(r#"has no instance "x""#), "{unknown}");
    let other = refusal(&named, &bootstrap(serde_json::json!({"x": {"plugin_name": "vault", "config": {}}})));
    assert!(other.contains("only file_watcher is supported"), "{other}");
    let useless = refusal(&named, &bootstrap(serde_json::json!({"x": roots})));
    assert!(useless.contains("has no certificate_file"), "{useless}");
    let missing = refusal(&secure, &bootstrap(serde_json::json!({"a": identity})));
    assert!(missing.starts_with("/none/c: "), "{missing}");
}

#[test]
fn a_key_of_another_certificate_and_empty_files_are_refused() {
    let ca = Authority::new("ca");
    let folder = CertificateFolder::new().unwrap();
    folder.write_identity(&ca.issue(Leaf::new("a"))).unwrap();
    folder.write(&folder.private_key_file(), &ca.issue(Leaf::new("b")).key_pem()).unwrap();
    folder.write(&folder.ca_file(), "").unwrap();
    let [certificate, key, roots] = [folder.certificate_file(), folder.private_key_file(), folder.ca_file()]
        .map(|path| path.display().to_string());
    let flags = [
        "--secure_mode".to_owned(),
        "--maintenance_port=1".to_owned(),
        format!("--certificate_file={certificate}"),
        format!("--private_key_file={key}"),
        format!("--ca_certificate_file={roots}"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mismatch = refusal(&flags[..4], "{}");
    assert!(mismatch.starts_with(&format!("{certificate} and {key}: ")), "{mismatch}");
    let empty = refusal(&flags, "{}");
    assert_eq!(empty, format!("{roots}: has no certificates in PEM"));
}

#[test]
fn files_are_read_again_and_a_half_written_pair_keeps_the_previous_one() {
    let ca = Authority::new("ca");
    let folder = CertificateFolder::new().unwrap();
    folder.write_identity(&ca.issue(Leaf::new("a"))).unwrap();
    let files = IdentityFiles {
        certificate_file: folder.certificate_file(),
        private_key_file: folder.private_key_file(),
    };
    let certificates = ServerCertificates::new(files, None, Duration::ZERO).unwrap();
    let first = certificates.latest();
    let second = ca.issue(Leaf::new("b"));
    folder.write(&folder.private_key_file(), &second.key_pem()).unwrap();
    assert!(Arc::ptr_eq(&first, &certificates.latest()));
    folder.write(&folder.certificate_file(), &second.chain_pem()).unwrap();
    assert!(!Arc::ptr_eq(&first, &certificates.latest()));
}

#[tokio::test]
async fn health_is_on_the_maintenance_port_and_can_be_changed() {
    let ports = [(); 2].map(|()| proxyless_testkit::dead_address().unwrap());
    let arguments = [
        "server".to_owned(),
        "--address_type=IPV4".to_owned(),
        format!("--port={}", ports[0].address().port()),
        format!("--maintenance_port={}", ports[1].address().port()),
    ];
    let serving = start(&ServerFlags::try_parse_from(arguments).unwrap()).await.unwrap();
    let server = tokio::spawn(serving);
    let connect =
        |port: u16| Endpoint::from_shared(format!("http://{}:{port}", Ipv4Addr::LOCALHOST)).unwrap();
    let maintenance = connect(ports[1].address().port()).connect().await.unwrap();
    let mut health = HealthClient::new(maintenance.clone());
    let check = HealthCheckRequest { service: String::new() };
    assert_eq!(health.check(check.clone()).await.unwrap().into_inner().status, 1);
    XdsUpdateHealthServiceClient::new(maintenance).set_not_serving(Empty {}).await.unwrap();
    assert_eq!(health.check(check).await.unwrap().into_inner().status, 2);

    let main = connect(ports[0].address().port()).connect().await.unwrap();
    TestServiceClient::new(main).empty_call(Empty {}).await.unwrap();
    server.abort();
}

#[tokio::test]
async fn one_port_can_do_for_everything() {
    let routes = merge(test_routes(identity()), maintenance_routes().await);
    let backend = Backend::serve("x", routes).await.unwrap();
    let channel = Endpoint::from_shared(format!("http://{}", backend.address())).unwrap().connect_lazy();
    TestServiceClient::new(channel.clone()).empty_call(Empty {}).await.unwrap();
    let check = HealthCheckRequest { service: "grpc.testing.TestService".into() };
    assert_eq!(HealthClient::new(channel).check(check).await.unwrap().into_inner().status, 1);
}

#[tokio::test]
async fn the_test_service_describes_itself_and_its_imports() {
    use proxyless_testkit::reflection::{
        MessageRequest, MessageResponse, ReflectionRequest, ReflectionResponse, V1, V1_ALPHA,
    };
    let (backend, _) = start_backend().await;
    let endpoint = Endpoint::from_shared(format!("http://{}", backend.address())).unwrap();
    for path in [V1, V1_ALPHA] {
        let questions = [
            MessageRequest::ListServices(String::new()),
            MessageRequest::FileContainingSymbol("grpc.testing.TestService".into()),
            MessageRequest::FileByFilename("messages.proto".into()),
        ];
        let requests =
            questions.map(|one| ReflectionRequest { host: String::new(), message_request: Some(one) });
        let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<ReflectionRequest, ReflectionResponse>::default();
        let path = http::uri::PathAndQuery::from_static(path);
        let responses =
            grpc.streaming(Request::new(tokio_stream::iter(requests)), path, codec).await.unwrap();
        let answers: Vec<_> =
            responses.into_inner().map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
        let [MessageResponse::Services(services), files @ ..] = &answers[..] else { panic!("{answers:?}") };
        let names: Vec<&str> = services.service.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(names, ["grpc.testing.TestService"]);
        assert!(
            files.len() == 2 && files.iter().all(|one| matches!(one, MessageResponse::FileDescriptors(_)))
        );
    }
}
