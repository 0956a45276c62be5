//! Fallback to other servers, and back (gRFC A71).

use super::planes::{Planes, bootstrap};
use super::*;

/// A core with two servers, whose first one has sent the endpoints `e` with port 1.
pub(super) fn started() -> Planes {
    let mut p = Planes::new(&[0, 1], &[]);
    p.watch(1, EDS, "e");
    p.up(0);
    p.respond(0, EDS, "1", &[assignment("e", 1)]);
    assert_eq!((p.told(), p.open()), (vec!["1: ok".to_owned()], vec![0]));
    p
}

/// A core that fell back to the second server, which has sent port 2.
fn fallen_back() -> Planes {
    let mut p = Planes::new(&[0, 1], &[]);
    p.watch(1, EDS, "e");
    p.down(0);
    p.up(1);
    p.respond(1, EDS, "1", &[assignment("e", 2)]);
    assert_eq!(p.port("e"), 2);
    p.told();
    p
}

pub(super) fn retry(p: &mut Planes) {
    p.advance(Duration::from_secs(2));
    assert!(p.open().contains(&0), "the first server is tried again");
}

#[test]
fn a71_08_10_missing_resource_and_no_server_begin_a_fallback() {
    let mut p = Planes::new(&[0, 1, 2], &[]);
    p.watch(1, EDS, "e");
    p.watch(2, CDS, "c");
    assert_eq!(p.open(), [0]);
    p.down(0);
    assert_eq!(p.open(), [1]);
    assert!(p.told().is_empty(), "A71-12: nobody is told yet");
    p.up(1);
    // A71-11: everything that is watched is requested.
    assert_eq!((p.names(1, EDS), p.names(1, CDS)), (vec!["e"], vec!["c"]));
    p.respond(1, EDS, "1", &[assignment("e", 2)]);
    assert_eq!((p.told(), p.port("e")), (vec!["1: ok".to_owned()], 2));
    assert!(!p.contacted.contains(&2));
}

#[test]
fn a71_09_cached_and_absent_resources_do_not_begin_a_fallback() {
    let mut p = started();
    p.watch(2, RDS, "absent");
    p.advance(Duration::from_secs(16));
    assert!(p.told()[0].contains("does not exist"));
    p.down(0);
    p.advance(Duration::from_secs(5));
    p.down(0);
    let told = p.told();
    assert!(told[1].starts_with("1: ambient") && !p.contacted.contains(&1), "{told:?}");
    assert_eq!(p.port("e"), 1);
    // A71-07: a resource that is missing from now on does.
    p.watch(3, EDS, "new");
    assert!(p.contacted.contains(&1));
    assert!(p.told().contains(&"1: fine".to_owned()), "the error is over while another server is tried");
}

#[test]
fn a71_08_stream_that_ends_after_a_response_does_not_begin_a_fallback() {
    let mut p = started();
    p.watch(2, EDS, "missing");
    p.down(0);
    p.advance(Duration::from_secs(2));
    assert!(!p.contacted.contains(&1));
    // The next one ends without a response.
    p.down(0);
    assert_eq!(p.open(), [1]);
}

#[test]
fn a71_08_rejected_response_is_not_a_failure() {
    let mut p = Planes::new(&[0, 1], &[]);
    p.watch(1, EDS, "e");
    p.up(0);
    p.respond(0, EDS, "1", &[bad_assignment("e")]);
    p.down(0);
    assert!(!p.contacted.contains(&1));
}

#[test]
fn a71_13_14_first_response_of_a_better_server_ends_the_fallback() {
    let mut p = fallen_back();
    retry(&mut p);
    p.up(0);
    assert_eq!((p.open(), p.names(0, EDS)), (vec![0, 1], vec!["e"]));
    let (_, request) = p.requests.last().unwrap();
    assert_eq!(request.version_info, "", "the versions of the servers are apart");
    p.respond(1, EDS, "2", &[assignment("e", 3)]);
    assert_eq!(p.port("e"), 3, "until then the other one is used");
    p.told();
    p.respond(0, EDS, "9", &[assignment("e", 1)]);
    assert_eq!((p.told(), p.port("e"), p.open()), (vec!["1: ok".to_owned()], 1, vec![0]));
}

#[test]
fn a71_14_connection_to_an_unused_server_is_closed() {
    let mut p = fallen_back();
    retry(&mut p);
    p.up(0);
    assert_eq!(p.connected, [0, 1].into());
    p.respond(0, EDS, "1", &[assignment("e", 1)]);
    assert_eq!(p.connected, [0].into());
    // A server that waits for its next attempt has a connection, perhaps, but not a stream.
    p.down(0);
    assert_eq!((p.open(), p.connected.clone()), (vec![], [0].into()));
    p.unwatch(1);
    assert!(p.connected.is_empty() && p.core.next_deadline().is_none());
}

#[test]
fn a71_13_cached_data_serves_until_the_better_server_has_sent_its_own() {
    let mut p = fallen_back();
    p.watch(2, RDS, "r");
    p.respond(1, RDS, "1", &[route("r")]);
    p.told();
    retry(&mut p);
    p.up(0);
    p.respond(0, RDS, "5", &[route("r")]);
    assert_eq!((p.open(), p.port("e")), (vec![0], 2));
    assert!(p.told().is_empty(), "unchanged data is not reported again");
    p.respond(0, EDS, "5", &[assignment("e", 1)]);
    assert_eq!(p.port("e"), 1);
}

#[test]
fn a71_13_any_response_counts_even_a_rejected_one_and_what_it_lacks_is_deleted() {
    let mut p = Planes::new(&[0, 1], &[]);
    p.watch(1, CDS, "c");
    p.down(0);
    p.up(1);
    p.respond(1, CDS, "1", &[cluster("c", "e")]);
    p.told();
    retry(&mut p);
    p.up(0);
    p.respond(0, CDS, "1", &[]);
    assert_eq!(p.open(), [0]);
    assert!(p.told()[0].contains("deleted"), "the first server does not have it");
    let mut p = fallen_back();
    retry(&mut p);
    p.up(0);
    p.respond(0, EDS, "1", &[bad_assignment("e")]);
    assert_eq!((p.open(), p.port("e")), (vec![0], 2), "the last valid data serves");
}

#[test]
fn a71_13_response_that_predates_a_request_deletes_nothing() {
    let mut p = Planes::new(&[0, 1], &[]);
    p.watch(1, CDS, "c");
    p.down(0);
    p.up(1);
    p.respond(1, CDS, "1", &[cluster("c", "e")]);
    retry(&mut p);
    p.up(0);
    p.watch(2, CDS, "d");
    p.respond(1, CDS, "2", &[cluster("c", "e"), cluster("d", "e")]);
    p.told();
    // The first server has answered the request for c alone.
    p.respond(0, CDS, "1", &[cluster("c", "e")]);
    assert!(p.told().is_empty() && p.open() == [0]);
    p.advance(Duration::from_secs(16));
    assert!(p.told()[0].contains("2: err"), "its timer decides");
}

#[test]
fn a71_14_late_messages_of_closed_streams_are_ignored() {
    let mut p = fallen_back();
    let late = p.streams[&1];
    retry(&mut p);
    p.up(0);
    p.respond(0, EDS, "1", &[assignment("e", 1)]);
    let response = response(EDS, "3", "n", &[assignment("e", 3)]);
    p.input(Input::Message { stream: late, bytes: response.encode_to_vec().into() });
    assert_eq!(p.port("e"), 1);
}

#[test]
fn a71_shared_server_keeps_the_resources_of_others_when_one_returns() {
    let c = |authority: &str| format!("xdstp://{authority}/envoy.config.cluster.v3.Cluster/c");
    let mut p = Planes::new(&[0, 1], &[("b", &[1])]);
    p.watch(1, CDS, &c("b"));
    p.up(1);
    p.respond(1, CDS, "1", &[cluster(&c("b"), "e")]);
    p.watch(2, CDS, "plain");
    p.down(0);
    assert_eq!((p.open(), p.names(1, CDS)), (vec![1], vec!["plain", &*c("b")]));
    p.respond(1, CDS, "2", &[cluster(&c("b"), "e"), cluster("plain", "e")]);
    p.told();
    retry(&mut p);
    p.up(0);
    p.respond(0, CDS, "1", &[cluster("plain", "f")]);
    assert_eq!((p.told(), p.open()), (vec!["2: ok".to_owned()], vec![0, 1]));
    assert_eq!(p.names(1, CDS), [c("b")]);
    p.respond(1, CDS, "3", &[cluster(&c("b"), "e"), cluster("plain", "e")]);
    assert!(p.told().is_empty(), "the better server is used");
}

#[test]
fn a71_authority_joins_a_server_that_is_known_to_be_unreachable() {
    let c = |authority: &str| format!("xdstp://{authority}/envoy.config.cluster.v3.Cluster/c");
    let mut p = Planes::new(&[0, 1], &[("b", &[0, 1])]);
    p.watch(1, CDS, "plain");
    p.down(0);
    p.up(1);
    p.watch(2, CDS, &c("b"));
    assert_eq!(p.names(1, CDS), ["plain", &*c("b")], "its first server has failed already");
    assert!(p.told().is_empty());
}

#[test]
fn a71_07_fallback_after_the_cache_was_complete_asks_for_everything() {
    let mut p = started();
    p.down(0);
    p.advance(Duration::from_secs(2));
    p.down(0);
    assert!(p.told()[0].starts_with("1: ambient"));
    p.watch(2, CDS, "c");
    p.up(1);
    assert_eq!((p.names(1, EDS), p.names(1, CDS)), (vec!["e"], vec!["c"]));
    assert_eq!(p.told(), ["1: fine"], "there is a server again");
    p.respond(1, EDS, "1", &[assignment("e", 2)]);
    assert_eq!(p.port("e"), 2);
    // The first server's version says nothing about what the second one has sent: with it the server would be silent.
    p.advance(Duration::from_secs(4));
    p.up(0);
    let of_first = |(server, request): &&(usize, _)| *server == 0 && is_eds(request);
    let (_, request) = p.requests.iter().rev().find(of_first).unwrap();
    assert_eq!(request.version_info, "");
}

fn is_eds(request: &DiscoveryRequest) -> bool {
    ResourceType::from_type_url(&request.type_url) == Some(EDS)
}

#[test]
fn a71_06_authority_without_watches_forgets_its_fallback_although_others_use_the_server() {
    let c = |authority: &str| format!("xdstp://{authority}/envoy.config.cluster.v3.Cluster/c");
    let mut p = Planes::new(&[0, 1], &[("b", &[1])]);
    p.watch(1, CDS, &c("b"));
    p.up(1);
    p.watch(2, CDS, "plain");
    p.down(0);
    p.respond(1, CDS, "1", &[cluster(&c("b"), "e"), cluster("plain", "e")]);
    p.unwatch(2);
    assert_eq!((p.open(), p.names(1, CDS)), (vec![1], vec![&*c("b")]));
    p.told();
    // The server may have missed the unsubscription, so the resource is kept for a while.
    p.advance(Duration::from_secs(31));
    p.watch(3, CDS, "plain");
    assert_eq!((p.open(), p.names(1, CDS)), (vec![0, 1], vec![&*c("b")]), "it begins with the first server");
    p.up(0);
    assert_eq!(p.names(0, CDS), ["plain"]);
    p.respond(0, CDS, "1", &[cluster("plain", "f")]);
    assert_eq!(p.told(), ["3: ok"]);
}

#[test]
fn a71_unwatching_everything_closes_all_streams() {
    let mut p = fallen_back();
    retry(&mut p);
    p.unwatch(1);
    assert!(p.open().is_empty() && p.core.next_deadline().is_none());
    p.watch(2, EDS, "e");
    assert_eq!(p.open(), [0], "and the next watch begins with the first server");
}

#[test]
fn a47_25_load_moves_with_the_cluster() {
    let c: Arc<str> = "c".into();
    let mut p = Planes::new(&[0, 1], &[]);
    p.watch(1, CDS, &c);
    p.down(0);
    p.up(1);
    p.respond(1, CDS, "1", &[cluster(&c, "e")]);
    assert_eq!((p.core.load_server(&c), p.moves), (ServerId(1), 1));
    retry(&mut p);
    p.up(0);
    // The same bytes, but from another server.
    p.respond(0, CDS, "1", &[cluster(&c, "e")]);
    assert_eq!((p.core.load_server(&c), p.moves), (ServerId(0), 2));
}

#[test]
fn a81_equal_bytes_of_a_trusted_and_another_server_are_decoded_again() {
    for gate in [true, false] {
        let gates = Gates { authority_rewrite: gate, ..Gates::default() };
        let mut config = XdsCoreConfig::new(&bootstrap(&[0, 1], &[]), gates, 1);
        config.servers[1].features.trusted_xds_server = true;
        let mut p = Planes::of(config);
        let rewrites = |p: &mut Planes| {
            let (_, event) = p.events.pop()?;
            let WatchEvent::Changed(Ok(Resource::RouteConfiguration(config))) = event else { return None };
            config.virtual_hosts[0].routes[0].action.as_ref().map(|action| action.auto_host_rewrite)
        };
        p.watch(1, RDS, "r");
        p.down(0);
        p.up(1);
        p.respond(1, RDS, "1", &[rewriting_route("r")]);
        assert_eq!(rewrites(&mut p), Some(gate));
        retry(&mut p);
        p.up(0);
        p.respond(0, RDS, "1", &[rewriting_route("r")]);
        assert_eq!(rewrites(&mut p), gate.then_some(false), "the first server is not trusted");
    }
}

/// A RouteConfiguration whose only route rewrites the authority, if the server is trusted.
fn rewriting_route(name: &str) -> Any {
    use envoy_types::pb::envoy::config::route::v3 as wire;
    use envoy_types::pb::google::protobuf::BoolValue;
    let action = wire::RouteAction {
        cluster_specifier: Some(wire::route_action::ClusterSpecifier::Cluster("c".into())),
        host_rewrite_specifier: Some(wire::route_action::HostRewriteSpecifier::AutoHostRewrite(BoolValue {
            value: true,
        })),
        ..Default::default()
    };
    let route = wire::Route {
        r#match: Some(wire::RouteMatch {
            path_specifier: Some(wire::route_match::PathSpecifier::Prefix(String::new())),
            ..Default::default()
        }),
        action: Some(wire::route::Action::Route(action)),
        ..Default::default()
    };
    let host = wire::VirtualHost { domains: vec!["*".into()], routes: vec![route], ..Default::default() };
    any(&RouteConfiguration { name: name.into(), virtual_hosts: vec![host], ..Default::default() })
}
