//! LOGICAL_DNS clusters from the query to the RPC.

use std::time::Duration;

use proxyless_balancer::api::{CallAttributes, ConnectivityState, PickArgs, PickResult};
use proxyless_balancer::testing::address;
use proxyless_xds::resource::{Cluster, ClusterKind};

use super::world::{Backend, Rpc, World};
use crate::channel_core::ChannelInput;
use crate::dns::{DnsConfig, DnsRefresh};
use crate::policies::fixtures::{aggregate_cluster, assignment, cluster, eds_cluster, locality};

fn dns_cluster(host: &str) -> Cluster {
    cluster(ClusterKind::LogicalDns { host: host.into(), port: 80 })
}

/// One LOGICAL_DNS cluster whose query is out.
fn one_name(dns: DnsConfig) -> World {
    let mut world = World::with_dns(dns);
    world.set_routes(&[("/", "d")]);
    world.input(ChannelInput::ExitIdle);
    world.set_cluster("d", dns_cluster("host"));
    world
}

/// An aggregate of an EDS leaf (backend 1) and a DNS leaf.
fn eds_then_dns() -> World {
    let mut world = World::with_routes(&[("/", "top")]);
    world.set_cluster("top", aggregate_cluster(&["e", "d"]));
    world.set_cluster("e", eds_cluster());
    world.set_cluster("d", dns_cluster("host"));
    world
}

#[test]
fn a37_29_rpcs_wait_for_the_name_and_then_go_out() {
    let mut world = one_name(DnsConfig::default());
    assert_eq!(world.queried, ["host".into()]);
    assert!(matches!(world.rpc("/s/m"), Rpc::Waits));
    world.answer_dns("host", Ok(&[1, 2]));
    assert_eq!(world.state(), Some(ConnectivityState::Ready));
    assert!(world.rpc("/s/m") == 1);
    assert_eq!(world.connected(), 1, "A37-33, A61: one endpoint, one connection");
}

#[test]
fn a37_29_a_literal_serves_without_any_query() {
    let mut world = World::with_routes(&[("/", "d")]);
    let host = address(7).ip().to_string();
    let port = address(7).port();
    world.set_cluster("d", cluster(ClusterKind::LogicalDns { host: host.into(), port }));
    assert!(world.rpc("/s/m") == 7);
    assert!(world.queried.is_empty());
    world.kill(7);
    world.advance(Duration::from_secs(300));
    assert!(world.queried.is_empty(), "not even when it fails");
}

#[test]
fn a37_34_a_failed_connection_asks_for_fresh_addresses() {
    let mut world = one_name(DnsConfig::default());
    world.set_backend(1, Backend::Refuses);
    world.answer_dns("host", Ok(&[1]));
    assert!(matches!(world.rpc("/s/m"), Rpc::Fails(_)));
    assert_eq!(world.queried.len(), 1, "the last query is fresh");
    world.advance(Duration::from_secs(30));
    assert_eq!(world.queried.len(), 2);
    world.answer_dns("host", Ok(&[2]));
    assert!(world.rpc("/s/m") == 2);
}

#[test]
fn a37_28_eds_leaves_are_never_resolved_again() {
    let mut world = World::with_routes(&[("/", "e")]);
    world.set_cluster("e", eds_cluster());
    world.set_backend(1, Backend::Refuses);
    world.set_endpoints("e", assignment(vec![vec![locality("l", 1, [1])]]));
    world.advance(Duration::from_secs(300));
    assert!(world.queried.is_empty());
}

#[test]
fn a37_61_a_failed_eds_leaf_causes_no_query_while_a_dns_leaf_serves() {
    let mut world = eds_then_dns();
    world.set_backend(1, Backend::Refuses);
    world.set_endpoints("e", assignment(vec![vec![locality("l", 1, [1])]]));
    world.answer_dns("host", Ok(&[2]));
    assert!(world.rpc("/s/m") == 2);
    world.take_connects();
    world.advance(Duration::from_secs(600));
    assert!(world.take_connects().len() > 3, "it is tried again and again");
    assert_eq!(world.queried.len(), 1);
    // A37-60: the DNS leaf's own failures do.
    world.kill(2);
    assert_eq!(world.queried.len(), 2);
}

#[test]
fn a37_40_the_next_leaf_serves_when_a_name_cannot_be_resolved() {
    let mut world = World::with_routes(&[("/", "top")]);
    world.set_cluster("top", aggregate_cluster(&["d", "e"]));
    world.set_cluster("d", dns_cluster("host"));
    world.set_cluster("e", eds_cluster());
    world.set_endpoints("e", assignment(vec![vec![locality("l", 1, [1])]]));
    world.answer_dns("host", Err("NXDOMAIN"));
    assert!(world.rpc("/s/m") == 1);
    // It comes back by itself.
    world.advance(Duration::from_millis(1_200));
    world.answer_dns("host", Ok(&[2]));
    assert!(world.rpc("/s/m") == 2);
}

#[test]
fn a37_37_the_reason_is_in_the_error_of_rpcs() {
    let mut world = one_name(DnsConfig::default());
    world.answer_dns("host", Err("NXDOMAIN"));
    let Rpc::Fails(why) = world.rpc("/s/m") else { panic!() };
    assert!(why.contains("DNS resolution of host:80 failed: NXDOMAIN"), "{why}");
}

#[test]
fn a37_37_silence_is_an_error_that_says_so() {
    let mut world = one_name(DnsConfig { query_timeout: Duration::from_secs(3), ..DnsConfig::default() });
    world.advance(Duration::from_secs(3));
    let Rpc::Fails(why) = world.rpc("/s/m") else { panic!() };
    assert!(why.contains("DNS resolution of host:80 failed: no answer within 3s"), "{why}");
}

#[test]
fn a37_39_a_failed_query_keeps_addresses_and_names_itself_once_they_fail() {
    let mut world =
        one_name(DnsConfig { refresh: DnsRefresh::Every(Duration::from_secs(60)), ..DnsConfig::default() });
    world.answer_dns("host", Ok(&[1]));
    world.advance(Duration::from_secs(60));
    world.answer_dns("host", Err("SERVFAIL"));
    assert!(world.rpc("/s/m") == 1);
    assert!(world.take_closes().is_empty());
    world.kill(1);
    world.advance(Duration::from_millis(100));
    world.rpc("/s/m");
    let Rpc::Fails(why) = world.rpc("/s/m") else { panic!() };
    assert!(why.contains("DNS resolution of host:80 failed: SERVFAIL"), "{why}");
}

#[test]
fn a61_a_refresh_leaves_the_live_connection_alone() {
    let every = DnsRefresh::Every(Duration::from_secs(60));
    let mut world = one_name(DnsConfig { refresh: every, ..DnsConfig::default() });
    world.answer_dns("host", Ok(&[1, 2]));
    let publishes = world.publishes;
    world.take_connects();
    world.advance(Duration::from_secs(60));
    world.answer_dns("host", Ok(&[2, 1]));
    assert_eq!(world.publishes, publishes, "the same addresses in another order");
    world.advance(Duration::from_secs(60));
    world.answer_dns("host", Ok(&[3, 1]));
    assert!(world.rpc("/s/m") == 1);
    assert_eq!((world.take_connects(), world.take_closes()), (vec![], vec![]));
    // Only an address that is gone costs its connection.
    world.advance(Duration::from_secs(60));
    world.answer_dns("host", Ok(&[3]));
    world.rpc("/s/m");
    assert!(world.rpc("/s/m") == 3);
}

#[test]
fn a37_34_reset_backoff_resolves_again_at_once() {
    let mut world = one_name(DnsConfig::default());
    world.answer_dns("host", Err("SERVFAIL"));
    world.input(ChannelInput::ResetBackoff);
    world.answer_dns("host", Ok(&[1]));
    assert!(world.rpc("/s/m") == 1);
}

#[test]
fn a81_the_authority_of_a_dns_leaf_is_its_name_and_port() {
    let mut world = one_name(DnsConfig::default());
    world.answer_dns("host", Ok(&[1, 2]));
    let (held, _) = world.hold("/s/m");
    let plane = world.plane.clone().expect("a snapshot");
    for (auto_host_rewrite, expected) in [(true, Some("host:80")), (false, None)] {
        let attributes =
            CallAttributes { cluster: held.id(), auto_host_rewrite, ..CallAttributes::default() };
        let (headers, mut rng) = (http::HeaderMap::new(), proxyless_sans_io::Rng::new(1));
        let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
        let PickResult::Complete(pick) = plane.picker.pick(&mut args) else { panic!() };
        assert_eq!(pick.authority.as_ref().and_then(|value| value.to_str().ok()), expected);
    }
}
