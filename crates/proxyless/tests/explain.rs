//! The explanation of calls, over real sockets.

mod common;

use std::time::Duration;

use common::*;
use http::{HeaderName, HeaderValue};
use proxyless::XdsChannel;
use proxyless::inspect::{Candidate, Decision, DecisionLevel, ExplainRequest, Explanation, Outcome};
use proxyless_testkit::Backend;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use tonic::{Code, Request};

const PATH: &str = "/proxyless.testkit.Echo/Unary";

async fn explain(channel: &XdsChannel, headers: &[(&'static str, &str)]) -> Explanation {
    let mut request = ExplainRequest::new(PATH);
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).expect("a header value");
        request = request.header(HeaderName::from_static(name), value);
    }
    let explanation = channel.explain(request).await.expect("an explanation");
    let json = serde_json::to_string(&explanation).expect("JSON");
    assert_eq!(serde_json::from_str::<Explanation>(&json).expect("JSON"), explanation);
    explanation
}

fn decision(explanation: &Explanation, level: DecisionLevel) -> &Decision {
    let found = explanation.decisions.iter().find(|decision| decision.level == level);
    found.unwrap_or_else(|| panic!("no {level} in\n{explanation}"))
}

/// The candidate whose name contains `name`.
fn candidate<'a>(explanation: &'a Explanation, level: DecisionLevel, name: &str) -> &'a Candidate {
    let mut candidates = decision(explanation, level).candidates.iter();
    let found = candidates.find(|candidate| candidate.name.contains(name));
    found.unwrap_or_else(|| panic!("no {level} {name} in\n{explanation}"))
}

#[tokio::test]
async fn an_idle_channel_stays_idle_and_the_explanation_says_so() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    let explanation = explain(&channel, &[]).await;
    let Outcome::Waits { why } = &explanation.outcome else { panic!("{explanation}") };
    assert!(why.contains("IDLE"), "{why}");
    assert_eq!(channel.describe().await.ok_or("no report")?.events_total, 0);
    Ok(())
}

#[tokio::test]
async fn after_a_failover_the_explanation_says_why_the_secondary_serves() -> TestResult {
    let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
    let plane = mesh(&[&near]).await;
    plane.set(priorities("cluster", [[&near], [&far]]));
    let channel = channel(&plane);
    until_only(&channel, &["near"]).await;
    let explanation = explain(&channel, &[]).await;
    assert_eq!(explanation.endpoint(), Some(near.address()), "{explanation}");
    assert_eq!(explanation.chosen(DecisionLevel::Priority), Some("priority 0"));
    near.kill().await;
    until_only(&channel, &["far"]).await;

    let explanation = explain(&channel, &[]).await;
    assert_eq!(explanation.endpoint(), Some(far.address()), "{explanation}");
    let primary = candidate(&explanation, DecisionLevel::Priority, "priority 0");
    assert!(!primary.chosen && primary.why.starts_with("failed: "), "{explanation}");
    assert!(primary.why.contains(&near.address().to_string()), "{explanation}");
    let secondary = candidate(&explanation, DecisionLevel::Priority, "priority 1");
    assert!(secondary.chosen && secondary.why.contains("failed over from priority 0"), "{explanation}");
    let text = explanation.to_string();
    for part in [
        "virtual host, by the most specific domain\n  → ",
        "its domain \"*\" matches any authority",
        "→ 1: any path → cluster: the path matches",
        "→ cluster READY: the only cluster of the route",
        " of 1024 requests in flight",
        &format!("goes to {}", far.address()),
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    Ok(())
}

#[tokio::test]
async fn each_route_that_is_passed_over_has_its_reason() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a]).await;
    plane.set_all([
        eds_cluster("other").into(),
        priorities("other", [[&b]]).into(),
        route_config(
            "route",
            [virtual_host(
                ["*"],
                [
                    route("other").path("/proxyless.testkit.Echo/Nothing"),
                    route_for("b", "other"),
                    route("cluster"),
                    route("other"),
                ],
            )],
        )
        .into(),
    ]);
    let channel = channel(&plane);
    assert_eq!(ask_for(&channel, "b").await?, "b");
    until_only(&channel, &["a"]).await;

    let explanation = explain(&channel, &[("x-choice", "c")]).await;
    assert_eq!(explanation.endpoint(), Some(a.address()), "{explanation}");
    let routes = decision(&explanation, DecisionLevel::Route);
    let why: Vec<_> = routes.candidates.iter().map(|route| (route.chosen, route.why.as_str())).collect();
    let path = format!("the path is {PATH}");
    assert_eq!(why, [(false, &*path), (false, "x-choice is \"c\""), (true, "the path matches")]);
    assert_eq!(routes.left_out, 1);
    let explanation = explain(&channel, &[]).await;
    let passed = &decision(&explanation, DecisionLevel::Route).candidates[1];
    assert_eq!(passed.why, "the request has no header x-choice that routes can see");
    let explanation = explain(&channel, &[("x-choice", "b")]).await;
    assert_eq!(explanation.endpoint(), Some(b.address()), "{explanation}");
    let chosen = decision(&explanation, DecisionLevel::Route).chosen().ok_or("no route")?;
    assert_eq!(chosen.why, "the path matches, x-choice = b");
    Ok(())
}

#[tokio::test]
async fn without_a_route_the_call_fails_and_each_route_says_why() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    ask(&channel).await?;
    plane.set(route_config("route", [virtual_host(["*"], [route_for("b", "cluster")])]));
    until_failure(&channel, "no route").await;
    let explanation = explain(&channel, &[]).await;
    let Outcome::Fails { code, message } = &explanation.outcome else { panic!("{explanation}") };
    assert_eq!(code, "UNAVAILABLE");
    assert!(message.contains("no route of virtual host"), "{message}");
    assert!(decision(&explanation, DecisionLevel::Route).chosen().is_none(), "{explanation}");
    Ok(())
}

#[tokio::test]
async fn a_weighted_split_shows_the_shares_and_the_draw() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a]).await;
    plane.set_all([
        eds_cluster("other").into(),
        priorities("other", [[&b]]).into(),
        route_config("route", [virtual_host(["*"], [weighted_route([("cluster", 3), ("other", 1)])])]).into(),
    ]);
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;
    let mut seen = std::collections::BTreeSet::new();
    let both = async {
        while seen.len() < 2 {
            let explanation = explain(&channel, &[]).await;
            let split = decision(&explanation, DecisionLevel::Cluster);
            let weights: Vec<_> = split.candidates.iter().map(|cluster| cluster.weight).collect();
            assert_eq!(weights, [Some(3), Some(1)], "{explanation}");
            let chosen = split.chosen().expect("a cluster");
            let (address, share) = match chosen.name.as_str() {
                "cluster" => (a.address(), "75 %"),
                _ => (b.address(), "25 %"),
            };
            assert_eq!(explanation.endpoint(), Some(address), "{explanation}");
            assert!(chosen.why.contains(share), "{explanation}");
            seen.insert(chosen.name.clone());
        }
    };
    tokio::time::timeout(PATIENCE, both).await?;
    Ok(())
}

#[tokio::test]
async fn a_session_cookie_explains_its_endpoint() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a, &b]).await;
    plane.set(listener_with(SERVICE, &connection_manager("route").filter(stateful_session("sid"))));
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;
    let response = EchoClient::new(channel.clone()).unary(Request::new(EchoRequest::new("hello"))).await?;
    let cookie = response.metadata().get("set-cookie").ok_or("no cookie")?.to_str()?.to_owned();
    let backend = if response.get_ref().backend == "a" { &a } else { &b };
    for _ in 0..4 {
        let explanation =
            explain(&channel, &[("cookie", cookie.split(';').next().ok_or("no cookie")?)]).await;
        assert_eq!(explanation.endpoint(), Some(backend.address()), "{explanation}");
        let session = candidate(&explanation, DecisionLevel::Session, &backend.address().to_string());
        assert!(session.chosen, "{explanation}");
        let endpoint = decision(&explanation, DecisionLevel::Endpoint).chosen().ok_or("no endpoint")?;
        assert_eq!(endpoint.why, "the session cookie names it");
    }
    let explanation = explain(&channel, &[]).await;
    assert!(explanation.filters[0].contains("no valid cookie sid"), "{explanation}");
    Ok(())
}

#[tokio::test]
async fn an_ejected_endpoint_says_so() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a, &b]).await;
    let detection = outlier_detection(Duration::from_millis(500), Duration::from_secs(300));
    let detection = detection.failure_percentage(50, 2, 3).max_ejection_percent(50);
    plane.set(eds_cluster("cluster").outlier_detection(detection));
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;
    b.fail_with(Code::Internal);
    until_only(&channel, &["a"]).await;
    let explanation = explain(&channel, &[]).await;
    assert_eq!(explanation.endpoint(), Some(a.address()), "{explanation}");
    let ejected = candidate(&explanation, DecisionLevel::Endpoint, &b.address().to_string());
    assert!(ejected.why.starts_with("ejected by outlier detection for "), "{explanation}");
    Ok(())
}

/// Neither the circuit breaker nor load reports see an explanation.
#[tokio::test]
async fn a32_an_explanation_takes_no_permit_and_shows_the_limit() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    // Counters are shared by the channels of the process, by cluster name.
    plane.set_all([
        simple_route_config("route", "a32-explained").into(),
        eds_cluster("a32-explained").max_requests(1).into(),
        priorities("a32-explained", [[&backend]]).into(),
    ]);
    let channel = channel(&plane);
    until_only(&channel, &["a"]).await;
    backend.hang();
    let held = hold(&channel, 1);
    backend.wait_in_flight(1).await?;
    let explanation = explain(&channel, &[]).await;
    let Outcome::Dropped { message, .. } = &explanation.outcome else { panic!("{explanation}") };
    assert!(message.contains("max_requests 1"), "{message}");
    let breaker = explanation.circuit_breaker.as_ref().ok_or("no circuit breaker")?;
    assert_eq!((breaker.in_flight, breaker.max_requests), (1, 1));
    drop(held);
    Ok(())
}

#[tokio::test]
async fn an_aggregate_names_each_leaf_with_its_state() -> TestResult {
    let (primary, secondary) = (Backend::start("primary").await?, Backend::start("secondary").await?);
    let plane = mesh(&[]).await;
    plane.set_all([
        aggregate_cluster("cluster", ["one", "two"]).into(),
        eds_cluster("one").into(),
        priorities("one", [[&primary]]).into(),
        eds_cluster("two").into(),
        priorities("two", [[&secondary]]).into(),
    ]);
    let channel = channel(&plane);
    until_only(&channel, &["primary"]).await;
    let explanation = explain(&channel, &[]).await;
    assert_eq!(explanation.chosen(DecisionLevel::LeafCluster), Some("one"), "{explanation}");
    let unused = candidate(&explanation, DecisionLevel::LeafCluster, "two");
    assert!(unused.why.contains("not needed"), "{explanation}");
    primary.kill().await;
    until_only(&channel, &["secondary"]).await;
    let explanation = explain(&channel, &[]).await;
    assert_eq!(explanation.endpoint(), Some(secondary.address()), "{explanation}");
    let failed = candidate(&explanation, DecisionLevel::LeafCluster, "one");
    assert!(failed.why.starts_with("failed: "), "{explanation}");
    assert_eq!(explanation.circuit_breaker.as_ref().map(|breaker| breaker.cluster.as_str()), Some("two"));
    Ok(())
}
