//! Stateful session affinity over real sockets (gRFC A55, A60, A61, A75).

mod common;

use std::time::Duration;

use common::*;
use proxyless::{Gates, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane, EDS, LDS};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

/// A control plane whose routes keep sessions with the cookie `sid`.
async fn session_mesh(backends: &[&Backend]) -> ControlPlane {
    let plane = mesh(backends).await;
    plane.set(listener_with(SERVICE, &connection_manager("route").filter(stateful_session("sid"))));
    plane
}

/// Sends one RPC with a cookie; returns the backend, and the cookie that it set (`name=value` only).
async fn ask_with(channel: &XdsChannel, cookie: Option<&str>) -> Result<(String, Option<String>), Status> {
    let mut request = Request::new(EchoRequest::new("hello"));
    request.set_timeout(PATIENCE);
    if let Some(cookie) = cookie {
        let value = MetadataValue::try_from(cookie).map_err(|_| Status::internal("no header value"))?;
        request.metadata_mut().insert("cookie", value);
    }
    let response = EchoClient::new(channel.clone()).unary(request).await?;
    let set = response.metadata().get("set-cookie").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let set = set.and_then(|set| set.split(';').next().map(str::to_owned));
    Ok((response.into_inner().backend, set))
}

/// Sends RPCs without a cookie until this backend answers; returns its cookie.
async fn cookie_of(channel: &XdsChannel, backend: &str) -> String {
    let found = async {
        loop {
            if let Ok((name, Some(cookie))) = ask_with(channel, None).await
                && name == backend
            {
                return cookie;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no cookie of {backend}"))
}

/// Sends RPCs with a cookie until one has the expected result.
async fn until(channel: &XdsChannel, cookie: &str, expected: impl Fn(&str, Option<&str>) -> bool) {
    let reached = async {
        loop {
            if let Ok((name, set)) = ask_with(channel, Some(cookie)).await
                && expected(&name, set.as_deref())
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("RPCs with the cookie never did what was expected");
}

/// All of a series of RPCs go to the host in their cookie, and none sets a new one.
async fn sticks(channel: &XdsChannel, cookie: &str, backend: &str) -> TestResult {
    for _ in 0..12 {
        assert_eq!(ask_with(channel, Some(cookie)).await?, (backend.to_owned(), None));
    }
    Ok(())
}

#[tokio::test]
async fn a55_a75_56_rpcs_with_a_cookie_stay_on_its_endpoint_and_no_gate_is_needed() -> TestResult {
    let (a, b, c) = (Backend::start("a").await?, Backend::start("b").await?, Backend::start("c").await?);
    let plane = session_mesh(&[&a, &b, &c]).await;
    let channel = builder(&plane).gates(Gates::default()).build()?;
    for name in ["b", "c"] {
        let cookie = cookie_of(&channel, name).await;
        assert!(cookie.starts_with("sid="), "{cookie}");
        sticks(&channel, &cookie, name).await?;
    }
    until_only(&channel, &["a", "b", "c"]).await;
    Ok(())
}

#[tokio::test]
async fn a55_without_the_filter_there_are_no_cookies() -> TestResult {
    let a = Backend::start("a").await?;
    let plane = session_mesh(&[&a]).await;
    let channel = channel(&plane);
    let cookie = cookie_of(&channel, "a").await;
    let mut quiet = route("cluster");
    quiet.typed_per_filter_config.insert("stateful_session".into(), no_stateful_session());
    plane.set(route_config("route", [virtual_host(["*"], [quiet])]));
    let none = async {
        while ask_with(&channel, None).await?.1.is_some() {}
        Ok::<_, Status>(())
    };
    tokio::time::timeout(PATIENCE, none).await??;
    // With the route restored, the old cookie is valid again.
    plane.set(simple_route_config("route", "cluster"));
    cookie_of(&channel, "a").await;
    sticks(&channel, &cookie, "a").await
}

#[tokio::test]
async fn a55_filters_of_the_listener_take_effect_without_new_routes() -> TestResult {
    let a = Backend::start("a").await?;
    let plane = mesh(&[&a]).await;
    let channel = channel(&plane);
    assert_eq!(ask_with(&channel, None).await?, ("a".to_owned(), None));
    let filter = stateful_session_with("sid", "/proxyless.testkit.Echo", Duration::from_secs(60));
    plane.set(listener_with(SERVICE, &connection_manager("route").filter(filter)));
    plane.wait_ack(LDS).await?;
    cookie_of(&channel, "a").await;
    Ok(())
}

#[tokio::test]
async fn a55_a_server_that_answers_with_trailers_only_gets_its_cookie_too() -> TestResult {
    let a = Backend::start("a").await?;
    let plane = session_mesh(&[&a]).await;
    let channel = channel(&plane);
    a.fail_with(Code::NotFound);
    let status = ask_with(&channel, None).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let cookie = status.metadata().get("set-cookie").ok_or("no cookie")?.to_str()?;
    assert!(cookie.starts_with("sid="), "{cookie}");
    Ok(())
}

#[tokio::test]
async fn a55_a75_20_a_draining_endpoint_keeps_its_sessions_only() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = session_mesh(&[&a, &b]).await;
    let statuses = [HealthStatus::Unknown, HealthStatus::Healthy, HealthStatus::Draining];
    plane.set(eds_cluster("cluster").override_host_status(statuses));
    let channel = channel(&plane);
    let cookie = cookie_of(&channel, "b").await;
    sticks(&channel, &cookie, "b").await?;
    let drained = [endpoint(&a), endpoint(&b).health(HealthStatus::Draining)];
    plane.set(priorities("cluster", [drained]));
    until_only(&channel, &["a"]).await;
    sticks(&channel, &cookie, "b").await?;
    assert_eq!(b.connections_accepted(), 1, "on the connection that was there");
    // No longer listed: the session moves.
    plane.set(priorities("cluster", [[&a]]));
    until(&channel, &cookie, |name, set| name == "a" && set.is_some()).await;
    Ok(())
}

#[tokio::test]
async fn a60_the_cookie_decides_between_weighted_clusters() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = session_mesh(&[]).await;
    plane.set_all([
        eds_cluster("one").into(),
        eds_cluster("two").into(),
        priorities("one", [[&a]]).into(),
        priorities("two", [[&b]]).into(),
        route_config("route", [virtual_host(["*"], [weighted_route([("one", 1), ("two", 1)])])]).into(),
    ]);
    let channel = channel(&plane);
    for name in ["a", "b"] {
        let cookie = cookie_of(&channel, name).await;
        sticks(&channel, &cookie, name).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a75_18_a_session_survives_the_move_of_its_endpoint_to_a_lower_priority() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = session_mesh(&[&a, &b]).await;
    let channel = channel(&plane);
    let cookie = cookie_of(&channel, "b").await;
    sticks(&channel, &cookie, "b").await?;
    plane.set(priorities("cluster", [[&a], [&b]]));
    plane.wait_ack(EDS).await?;
    until_only(&channel, &["a"]).await;
    sticks(&channel, &cookie, "b").await?;
    assert_eq!(b.connections_accepted(), 1, "on the connection that was there");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a75_51_many_waiting_rpcs_have_one_connection_made_to_a_lower_priority() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = session_mesh(&[&b]).await;
    let cookie = cookie_of(&channel(&plane), "b").await;
    plane.set(priorities("cluster", [[&a], [&b]]));
    // A channel on which b has never served.
    let channel = channel(&plane);
    until_only(&channel, &["a"]).await;
    let before = b.connections_accepted();
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let (channel, cookie) = (channel.clone(), cookie.clone());
            tokio::spawn(async move { ask_with(&channel, Some(&cookie)).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await??, ("b".to_owned(), None));
    }
    assert_eq!(b.connections_accepted(), before + 1);
    until_only(&channel, &["a"]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a75_52_rpcs_leave_a_host_that_never_answers() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = session_mesh(&[&a, &b]).await;
    // An attempt takes as long as its backoff, so that the next one follows at once.
    let channel = builder(&plane).connect_timeout(Duration::from_millis(1)).build()?;
    let cookie = cookie_of(&channel, "b").await;
    b.kill().await;
    let silent = tokio::net::TcpListener::bind(b.address()).await?;
    let mut held = vec![silent.accept().await?];
    // While attempts get no response, each RPC waits for at most one of them.
    while held.len() < 3 {
        let rpcs: Vec<_> = (0..40)
            .map(|_| {
                let (channel, cookie) = (channel.clone(), cookie.clone());
                tokio::spawn(async move { ask_with(&channel, Some(&cookie)).await })
            })
            .collect();
        held.push(silent.accept().await?);
        for rpc in rpcs {
            assert_eq!(rpc.await??.0, "a");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a75_52_when_the_endpoint_dies_the_session_moves_with_a_new_cookie_and_comes_back() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = session_mesh(&[&a, &b]).await;
    let channel = channel(&plane);
    let cookie = cookie_of(&channel, "b").await;
    b.kill().await;
    until(&channel, &cookie, |name, set| name == "a" && set.is_some()).await;
    b.restart().await?;
    until(&channel, &cookie, |name, set| name == "b" && set.is_none()).await;
    Ok(())
}
