//! The admin port: channelz, health and the live page, and the clients that it accepts.

mod common;

use common::*;
use http_body_util::BodyExt as _;
use proxyless::Gates;
use proxyless::inspect::{ChannelView, Explanation, ProcessView};
use proxyless_admin::{Admin, ClientResources, ControlRow, Controls};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, EDS, Proxy, RDS};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::service::Routes;
use tonic_health::pb::health_check_response::ServingStatus;
use tower::{Service as _, ServiceExt as _};

mod channelz {
    #![allow(unreachable_pub, unused_qualifications, missing_docs, dead_code, clippy::enum_variant_names)]
    tonic::include_proto!("grpc.channelz.v1");
}
use channelz::channel_connectivity_state::State;
use channelz::channel_trace_event::ChildRef;
use channelz::*;

/// GET over HTTP/2.
async fn get(rig: &Rig, path: &str) -> Result<(u16, String), Box<dyn std::error::Error>> {
    let request = http::Request::get(format!("http://{}{path}", rig.admin.address()))
        .body(tonic::body::Body::empty())?;
    let response = rig.admin_channel().ready().await?.call(request).await?;
    let status = response.status().as_u16();
    Ok((status, String::from_utf8(response.into_body().collect().await?.to_bytes().to_vec())?))
}

async fn channels(rig: &Rig) -> Vec<ChannelView> {
    serde_json::from_str(&get(rig, "/proxyless/channels.json").await.unwrap().1).unwrap()
}

/// One request over HTTP/1.1, as browsers send it; the status line and all after it.
async fn http1(rig: &Rig, path: &str, headers: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut stream = TcpStream::connect(rig.admin.address()).await?;
    let request = format!("GET {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn a38_one_call_adds_all_services_to_another_server() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    let routes = Admin::default().client_pool(rig.pool.clone()).add_to(Routes::default());
    let server = Backend::serve("mine", routes).await?;
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address()))?;
    let to = endpoint.connect().await?;
    let mut health = tonic_health::pb::health_client::HealthClient::new(to.clone());
    let status = health.check(tonic_health::pb::HealthCheckRequest::default()).await?.into_inner();
    assert_eq!(status.status(), ServingStatus::Serving);
    let mut channelz = channelz_client::ChannelzClient::new(to.clone());
    assert_eq!(
        channelz.get_top_channels(GetTopChannelsRequest::default()).await?.into_inner().channel.len(),
        1
    );
    let mut csds = envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient::new(to);
    assert_eq!(
        csds.fetch_client_status(envoy_types::pb::envoy::service::status::v3::ClientStatusRequest::default())
            .await?
            .into_inner()
            .config
            .len(),
        1
    );
    Ok(())
}

#[tokio::test]
async fn the_port_is_on_the_loopback_interface() {
    let rig = Rig::start().await;
    assert!(rig.admin.address().ip().is_loopback());
}

#[tokio::test]
async fn a14_channels_subchannels_sockets_calls_and_traces() -> TestResult {
    let rig = Rig::start().await;
    let channel = rig.connected().await;
    rig.backend.fail_with(tonic::Code::Internal);
    ask(&channel).await.unwrap_err();
    let mut client = channelz_client::ChannelzClient::new(rig.admin_channel());
    let top = client.get_top_channels(GetTopChannelsRequest::default()).await?.into_inner();
    assert!(top.end);
    let [shown] = &top.channel[..] else { panic!("{top:?}") };
    let id = shown.r#ref.as_ref().ok_or("no ref")?.channel_id;
    let data = shown.data.as_ref().ok_or("no data")?;
    assert_eq!(data.target, channel.target());
    assert_eq!(data.state.as_ref().map(|state| state.state()), Some(State::Ready));
    assert_eq!((data.calls_started, data.calls_succeeded, data.calls_failed), (2, 1, 1));

    let trace = data.trace.as_ref().ok_or("no trace")?;
    assert_eq!(trace.num_events_logged, trace.events.len() as i64);
    let event = |part: &str| trace.events.iter().find(|event| event.description.contains(part));
    assert!(event("new Cluster cluster in use").is_some(), "xDS events are in the trace: {trace:?}");
    let connected = event("connected").ok_or("no connection event")?;
    let [reference] = &shown.subchannel_ref[..] else { panic!("{shown:?}") };
    assert_eq!(connected.child_ref, Some(ChildRef::SubchannelRef(reference.clone())));

    let subchannel_id = reference.subchannel_id;
    let subchannel = client.get_subchannel(GetSubchannelRequest { subchannel_id }).await?.into_inner();
    let subchannel = subchannel.subchannel.ok_or("no subchannel")?;
    let data = subchannel.data.ok_or("no data")?;
    assert_eq!((data.target, data.calls_succeeded), (rig.backend.address().to_string(), 1));
    assert!(
        data.trace.ok_or("no trace")?.events.iter().any(|event| event.description.contains("connecting"))
    );

    let socket_id = subchannel.socket_ref[0].socket_id;
    let socket = client.get_socket(GetSocketRequest { socket_id, summary: false }).await?.into_inner();
    let socket = socket.socket.ok_or("no socket")?;
    assert_eq!(socket.data.map(|data| (data.streams_started, data.streams_failed)), Some((2, 1)));
    assert_eq!(socket.remote_name, rig.backend.address().to_string());

    let same = client.get_channel(GetChannelRequest { channel_id: id }).await?.into_inner().channel;
    assert_eq!(same.and_then(|channel| channel.r#ref), shown.r#ref);
    let missing = client.get_channel(GetChannelRequest { channel_id: 999_999 }).await.unwrap_err();
    assert_eq!(missing.code(), tonic::Code::NotFound);
    assert!(client.get_servers(GetServersRequest::default()).await?.into_inner().end);
    Ok(())
}

#[tokio::test]
async fn a14_a86_a_socket_shows_the_proxy_and_the_endpoint() -> TestResult {
    let (rig, proxy) = (Rig::start().await, Proxy::start().await?);
    rig.plane.set_all([
        eds_cluster("cluster").http_connect().into(),
        priorities("cluster", [[endpoint(&rig.backend).proxy(proxy.address())]]).into(),
    ]);
    let mut gates = Gates::default();
    gates.http_connect = true;
    let channel = rig.builder(&format!("xds:///{SERVICE}")).gates(gates).build()?;
    assert_eq!(ask(&channel).await?, "a");
    let through = format!("{} through {}", rig.backend.address(), proxy.address());
    let mut client = channelz_client::ChannelzClient::new(rig.admin_channel());
    let top = client.get_top_channels(GetTopChannelsRequest::default()).await?.into_inner();
    let reference = &top.channel[0].subchannel_ref[0];
    assert_eq!(reference.name, through);
    let subchannel_id = reference.subchannel_id;
    let subchannel = client.get_subchannel(GetSubchannelRequest { subchannel_id }).await?.into_inner();
    let socket_id = subchannel.subchannel.ok_or("no subchannel")?.socket_ref[0].socket_id;
    let socket = client.get_socket(GetSocketRequest { socket_id, summary: false }).await?.into_inner();
    let socket = socket.socket.ok_or("no socket")?;
    assert_eq!(socket.remote_name, rig.backend.address().to_string());
    let Some(address::Address::TcpipAddress(remote)) = socket.remote.and_then(|remote| remote.address) else {
        panic!("no remote address")
    };
    assert_eq!(remote.port, i32::from(proxy.address().port()));
    let view = channels(&rig).await;
    assert_eq!(view[0].subchannels[0].proxy, Some(proxy.address()));
    Ok(())
}

#[tokio::test]
async fn a14_channels_come_in_pages() -> TestResult {
    let rig = Rig::start().await;
    let channels: Vec<_> = (0..3).map(|_| rig.channel()).collect();
    let mut client = channelz_client::ChannelzClient::new(rig.admin_channel());
    let request = GetTopChannelsRequest { start_channel_id: 0, max_results: 2 };
    let first = client.get_top_channels(request).await?.into_inner();
    assert_eq!((first.channel.len(), first.end), (2, false));
    let last = first.channel[1].r#ref.as_ref().ok_or("no ref")?.channel_id;
    let request = GetTopChannelsRequest { start_channel_id: last + 1, max_results: 2 };
    let second = client.get_top_channels(request).await?.into_inner();
    assert_eq!((second.channel.len(), second.end), (1, true));
    drop(channels);
    Ok(())
}

#[tokio::test]
async fn the_tree_is_there_as_json() -> TestResult {
    let rig = Rig::start().await;
    let channel = rig.connected().await;
    let reports = channels(&rig).await;
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].tree.routes, channel.tree().await.ok_or("no tree")?.routes);
    assert_eq!((reports[0].calls.succeeded, reports[0].subchannels.len()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn resources_are_there_as_json() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    rig.plane.corrupt(CDS, "cluster");
    rig.plane.wait_nack(CDS).await?;
    let clients: Vec<ClientResources> =
        serde_json::from_str(&get(&rig, "/proxyless/resources.json").await?.1)?;
    assert_eq!((clients.len(), clients[0].node.as_str(), clients[0].resources.len()), (1, "testkit-node", 4));
    assert!(clients[0].resources.iter().all(|resource| resource.updated.is_some()));
    // The counter has the type of the rejected resource, although its name could not be read.
    let clusters = clients[0].updates.iter().find(|updates| updates.kind == "Cluster").ok_or("no counter")?;
    assert_eq!((clusters.valid, clusters.invalid), (1, 1));
    Ok(())
}

#[tokio::test]
async fn the_process_is_there_as_json() -> TestResult {
    let rig = Rig::start().await;
    let process: ProcessView = serde_json::from_str(&get(&rig, "/proxyless/process.json").await?.1)?;
    assert_eq!((process.pid, process.version.as_str()), (std::process::id(), env!("CARGO_PKG_VERSION")));
    assert!(process.name.starts_with("admin") && process.started > std::time::UNIX_EPOCH, "{process:?}");
    Ok(())
}

#[tokio::test]
async fn a_call_is_explained_as_json() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    let id = channels(&rig).await[0].id;
    let (status, answer) =
        get(&rig, &format!("/proxyless/explain.json?channel={id}&path=/s/m&header=a:b")).await?;
    assert_eq!(status, 200, "{answer}");
    let explanation: Explanation = serde_json::from_str(&answer)?;
    assert!(explanation.endpoint().is_some(), "{explanation}");
    let (status, answer) = get(&rig, "/proxyless/explain.json?channel=x").await?;
    assert_eq!((status, &*answer), (400, "channel: \"x\" is not an id; path: missing"));
    let (status, answer) = get(&rig, "/proxyless/explain.json?channel=999999&path=/s/m").await?;
    assert_eq!((status, &*answer), (404, "there is no channel 999999, or it does not answer"));
    Ok(())
}

struct OneButton(std::sync::Mutex<Vec<String>>);

impl Controls for OneButton {
    fn rows(&self) -> Vec<ControlRow> {
        let buttons = vec![("kill".to_owned(), "kill a".to_owned())];
        vec![ControlRow { label: "a".to_owned(), state: "up".to_owned(), buttons }]
    }

    fn act(&self, command: &str) -> Result<(), String> {
        self.0.lock().unwrap().push(command.to_owned());
        Ok(())
    }
}

#[tokio::test]
async fn buttons_are_pressed_by_their_own_page_only() -> TestResult {
    let mut rig = Rig::start().await;
    let own = format!("host: {}\r\n", rig.admin.address());
    // The answer of a gRPC server to an unknown path.
    let none = http1(&rig, "/proxyless/controls.json", &own).await?;
    assert!(none.contains("grpc-status: 12") && !none.contains("kill"), "only demos have buttons: {none}");
    let buttons = std::sync::Arc::new(OneButton(std::sync::Mutex::default()));
    rig.admin = Admin::default().client_pool(rig.pool.clone()).controls(buttons.clone()).serve(0).await?;
    let own = format!("host: {}\r\n", rig.admin.address());
    assert!(http1(&rig, "/proxyless/controls.json", &own).await?.contains(r#"["kill","kill a"]"#));
    let press = async |headers: &str| -> Result<String, Box<dyn std::error::Error>> {
        let mut stream = TcpStream::connect(rig.admin.address()).await?;
        let request = format!(
            "POST /proxyless/controls.json HTTP/1.1\r\n{headers}content-length: 6\r\nconnection: close\r\n\r\nkill a"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    for headers in [
        "host: evil.example\r\n".to_owned(),
        format!("{own}origin: http://evil.example\r\n"),
        format!("{own}sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n"),
    ] {
        assert!(press(&headers).await?.starts_with("HTTP/1.1 403"), "{headers}");
    }
    assert!(buttons.0.lock().unwrap().is_empty());
    let origin = format!("{own}origin: http://{}\r\n", rig.admin.address());
    assert!(press(&origin).await?.starts_with("HTTP/1.1 204"));
    assert_eq!(*buttons.0.lock().unwrap(), ["kill a"]);
    Ok(())
}

#[tokio::test]
async fn browsers_get_the_page_and_only_their_own() -> TestResult {
    let rig = Rig::start().await;
    let own = format!("host: {}\r\n", rig.admin.address());
    let answer = http1(&rig, "/proxyless/", &own).await?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("content-security-policy: default-src 'none'"), "{answer}");
    assert!(http1(&rig, "/", &own).await?.starts_with("HTTP/1.1 307"));
    let page = answer.split_once("\r\n\r\n").ok_or("no body")?.1;
    assert!(!page.contains("http://") && !page.contains("https://"), "the page needs nothing from outside");

    for path in ["/proxyless/", "/proxyless/channels.json", "/proxyless/history.json"] {
        let answer = http1(&rig, path, &own).await?;
        assert!(answer.contains("cross-origin-resource-policy: same-origin"), "{answer}");
        assert!(answer.contains("x-content-type-options: nosniff"), "{answer}");
    }

    for headers in [
        "host: evil.example\r\n".to_owned(),
        format!("{own}origin: http://evil.example\r\n"),
        format!("{own}sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n"),
    ] {
        for path in [
            "/proxyless/",
            "/proxyless/channels.json",
            "/proxyless/explain.json?channel=1&path=/s/m",
            "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus",
        ] {
            let answer = http1(&rig, path, &headers).await?;
            assert!(answer.starts_with("HTTP/1.1 403"), "{path} with {headers:?}: {answer}");
        }
    }
    Ok(())
}

/// All that the admin port shows of a mesh that fails, as `status` and the page show it.
async fn everything(rig: &Rig) -> String {
    let tree = channels(rig).await.into_iter().map(|report| report.tree.to_string()).collect::<String>();
    tree + &get(rig, "/proxyless/resources.json").await.unwrap().1
}

async fn failing(rig: &Rig) -> (proxyless::XdsChannel, String) {
    let builder = rig.builder(&format!("xds:///{SERVICE}"));
    let channel = builder.resource_timeout(std::time::Duration::from_millis(100)).build().unwrap();
    ask(&channel).await.unwrap_err();
    let shown = everything(rig).await;
    (channel, shown)
}

#[tokio::test]
async fn missing_endpoints_are_named() {
    let rig = Rig::start().await;
    rig.plane.remove(EDS, "cluster");
    let (_channel, shown) = failing(&rig).await;
    assert!(shown.contains("ClusterLoadAssignment cluster: does not exist"), "{shown}");
    assert!(shown.contains(r#""status":"DOES_NOT_EXIST""#), "{shown}");
}

#[tokio::test]
async fn a_rejected_cluster_is_named_with_its_reason() {
    let rig = Rig::start().await;
    let mut bad = eds_cluster("cluster");
    bad.eds_cluster_config = None;
    rig.plane.set(bad);
    let (_channel, shown) = failing(&rig).await;
    assert!(shown.contains("Cluster cluster: rejected version"), "{shown}");
    assert!(shown.contains("eds_cluster_config"), "{shown}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_named() {
    let rig = Rig::start().await;
    rig.plane.set(logical_dns_cluster("cluster", "no-such-host.invalid", 80));
    let (_channel, shown) = failing(&rig).await;
    assert!(shown.contains("no-such-host.invalid"), "{shown}");
}

#[tokio::test]
async fn a_route_that_sends_rpcs_nowhere_is_shown() {
    let rig = Rig::start().await;
    rig.plane.remove(RDS, "route");
    let (_channel, shown) = failing(&rig).await;
    assert!(shown.contains("RouteConfiguration route: does not exist"), "{shown}");
}

#[tokio::test]
async fn a14_a_call_that_was_tried_again_is_one_call_of_its_channel() -> TestResult {
    use envoy_types::pb::envoy::config::route::v3::RetryPolicy;
    use envoy_types::pb::envoy::config::route::v3::route::Action;
    let rig = Rig::start().await;
    let mut retried = route("cluster");
    let Some(Action::Route(action)) = &mut retried.action else { return Err("no route action".into()) };
    let num_retries = Some(envoy_types::pb::google::protobuf::UInt32Value { value: 2 });
    action.retry_policy =
        Some(RetryPolicy { retry_on: "unavailable".into(), num_retries, ..Default::default() });
    rig.plane.set(route_config("route", [virtual_host(["*"], [retried])]));
    rig.backend.fail_with(tonic::Code::Unavailable);
    let channel = rig.channel();
    ask(&channel).await.unwrap_err();
    assert_eq!(rig.backend.count(), 3);
    let report = channels(&rig).await.remove(0);
    assert_eq!((report.calls.started, report.calls.failed), (1, 1));
    assert_eq!(report.subchannels[0].calls.failed, 3, "a subchannel counts attempts");
    Ok(())
}

/// Two backends of [`SERVICE`], of which `b` fails and is ejected as soon as RPCs show it; a session is on `a`.
async fn ejecting(rig: &Rig) -> Result<(Backend, proxyless::XdsChannel), Box<dyn std::error::Error>> {
    use std::time::Duration;
    let b = Backend::start("b").await?;
    b.fail_with(tonic::Code::Internal);
    let detection = outlier_detection(Duration::from_millis(100), Duration::from_secs(300));
    let detection = detection.failure_percentage(50, 2, 3).max_ejection_percent(50);
    rig.plane.set_all([
        listener_with(SERVICE, &connection_manager("route").filter(stateful_session("sid"))).into(),
        eds_cluster("cluster").outlier_detection(detection).report_load().into(),
        priorities("cluster", [[&rig.backend, &b]]).into(),
    ]);
    let channel = rig.channel();
    let ejected = async {
        loop {
            // Successes are those of a.
            let _ = ask(&channel).await;
            let reports = channels(rig).await;
            if reports.iter().any(|report| report.tree.to_string().contains("endpoints_ejected=1")) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ejected).await?;
    Ok((b, channel))
}

#[tokio::test]
async fn a50_a75_a27_57_ejections_sessions_and_load_are_in_the_tree_and_its_json() -> TestResult {
    let rig = Rig::start().await;
    let (b, _channel) = ejecting(&rig).await?;
    let report = channels(&rig).await.remove(0);
    let text = report.tree.to_string();
    let mut details = Vec::new();
    report.tree.root.as_ref().ok_or("no tree")?.walk(&mut |node| details.extend(&node.details));
    let find = |kind: &str| details.iter().find(|detail| detail.kind == kind).ok_or(text.clone());
    let ejected = find("ejected")?;
    assert_eq!(ejected.subject, b.address().to_string());
    let number = |name: &str| ejected.fields[name].as_u64();
    assert!(number("failed") >= Some(3) && number("failed") == number("calls"), "{text}");
    assert!(text.contains(&ejected.to_string()) && text.contains("ejections=1"), "{text}");
    let session = find("session")?;
    assert!(text.contains("idleTimeout=3600s") && session.fields["state"] == "READY", "{text}");
    let load = find("load")?;
    assert_eq!(load.subject, "region / priority-0");
    assert_eq!(load.fields["succeeded"], rig.backend.count(), "{text}");
    assert_eq!(load.fields["failed"], b.count(), "{text}");
    assert_eq!(load.fields["issued"], rig.backend.count() + b.count(), "{text}");
    Ok(())
}

#[tokio::test]
async fn a14_a50_a_subchannel_says_that_its_endpoint_is_ejected() -> TestResult {
    let rig = Rig::start().await;
    let (b, _channel) = ejecting(&rig).await?;
    let mut client = channelz_client::ChannelzClient::new(rig.admin_channel());
    let top = client.get_top_channels(GetTopChannelsRequest::default()).await?.into_inner();
    let mut said = Vec::new();
    for reference in &top.channel[0].subchannel_ref {
        let request = GetSubchannelRequest { subchannel_id: reference.subchannel_id };
        let data = client.get_subchannel(request).await?.into_inner().subchannel.and_then(|s| s.data);
        let trace = data.and_then(|data| data.trace).ok_or("no trace")?;
        assert_eq!(trace.num_events_logged, trace.events.len() as i64);
        let ejected = trace.events.iter().any(|event| event.description.starts_with("ejected "));
        said.push((reference.name.clone(), ejected));
    }
    said.sort_unstable_by_key(|(_, ejected)| *ejected);
    assert_eq!(said, [(rig.backend.address().to_string(), false), (b.address().to_string(), true)]);
    Ok(())
}
