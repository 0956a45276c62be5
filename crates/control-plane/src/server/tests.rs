//! Streams without IO: what is sent when.

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::rpc::Status;
use proxyless_testkit::resources::{
    aggregate_resource, assignment, eds_cluster, listener, simple_route_config,
};
use proxyless_testkit::{AGGREGATE, CDS, EDS, LDS, RDS, Resource};

use super::delta::Delta;
use super::plane::Plane;
use super::snapshot::Snapshot;
use super::sotw::Sotw;
use super::streams::Protocol;
use super::subscription::News;

fn mesh(clusters: &[&str]) -> Vec<Resource> {
    let mut all: Vec<Resource> =
        vec![listener("l", "r").into(), simple_route_config("r", clusters[0]).into()];
    for name in clusters {
        all.extend([eds_cluster(name).into(), assignment(name, []).into()]);
    }
    all
}

fn ask(type_url: &str, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: type_url.into(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

fn answer(response: &DiscoveryResponse, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        version_info: response.version_info.clone(),
        response_nonce: response.nonce.clone(),
        ..ask(&response.type_url, names)
    }
}

fn all(stream: &mut Sotw, snapshot: &Snapshot) -> Vec<(String, usize, String)> {
    let mut sent = Vec::new();
    while let Some(response) = stream.next_response(snapshot) {
        sent.push((response.type_url, response.resources.len(), response.version_info));
    }
    sent
}

#[test]
fn responses_make_before_they_break_and_only_changed_types_are_sent() {
    let first = Snapshot::default().next(&mesh(&["a"]));
    let mut stream = Sotw::default();
    for (type_url, name) in [(RDS, "r"), (LDS, "l"), (EDS, "a"), (CDS, "a")] {
        stream.on_request(&ask(type_url, &[name]));
    }
    let types: Vec<String> = all(&mut stream, &first).into_iter().map(|(type_url, ..)| type_url).collect();
    assert_eq!(types, [CDS, EDS, LDS, RDS]);
    // The same content has the same versions.
    assert!(all(&mut stream, &first.next(&mesh(&["a"]))).is_empty());
    let mut changed = mesh(&["a"]);
    changed[2] = Resource::from({
        let mut cluster = eds_cluster("a");
        cluster.alt_stat_name = "x".into();
        cluster
    });
    assert_eq!(all(&mut stream, &first.next(&changed)), [(CDS.to_owned(), 1, "2".to_owned())]);
}

#[test]
fn clusters_come_as_a_list_and_endpoints_as_they_change() {
    let both = Snapshot::default().next(&mesh(&["a", "b"]));
    let mut stream = Sotw::default();
    stream.on_request(&ask(CDS, &[]));
    stream.on_request(&ask(EDS, &["a"]));
    assert_eq!(all(&mut stream, &both).iter().map(|(_, count, _)| *count).collect::<Vec<_>>(), [2, 1]);
    stream.on_request(&ask(EDS, &["a", "b", "unknown"]));
    assert_eq!(all(&mut stream, &both), [(EDS.to_owned(), 1, "1".to_owned())]);
    // A removed cluster is absent from the next list; removed endpoints are not mentioned.
    let one = both.next(&mesh(&["a"]));
    assert_eq!(all(&mut stream, &one), [(CDS.to_owned(), 1, "2".to_owned())]);
}

#[test]
fn new_routes_wait_until_new_clusters_are_answered() {
    let first = Snapshot::default().next(&mesh(&["a"]));
    let mut stream = Sotw::default();
    stream.on_request(&ask(CDS, &[]));
    stream.on_request(&ask(RDS, &["r"]));
    all(&mut stream, &first);
    let second = first.next(&mesh(&["b"]));
    let clusters = stream.next_response(&second).unwrap();
    assert_eq!(clusters.type_url, CDS);
    assert!(stream.next_response(&second).is_none());
    stream.on_request(&answer(&clusters, &[]));
    assert_eq!(stream.next_response(&second).unwrap().type_url, RDS);
}

#[test]
fn answers_count_for_the_latest_response_only() {
    let snapshot = Snapshot::default().next(&mesh(&["a"]));
    let mut stream = Sotw::default();
    stream.on_request(&ask(CDS, &["a"]));
    let old = stream.next_response(&snapshot).unwrap();
    let new = stream.next_response(&snapshot.next(&mesh(&["b"]))).unwrap();
    assert_eq!(stream.on_request(&answer(&old, &[])), None);
    assert!(stream.subscriptions()[CDS].names.contains("a"), "an old answer changes no subscription");
    let error = Status { message: "bad".into(), ..Default::default() };
    let nack = DiscoveryRequest { error_detail: Some(error), ..answer(&new, &["a"]) };
    let expected = News::Nack { version: "2".into(), error: "bad".into() };
    assert_eq!(stream.on_request(&nack), Some(expected));
    assert_eq!(stream.on_request(&nack), None, "once");
    assert_eq!(stream.subscriptions()[CDS].error.as_deref(), Some("bad"));
}

#[test]
fn the_incremental_protocol_sends_changes_removals_and_missing_names_once() {
    let both = Snapshot::default().next(&mesh(&["a", "b"]));
    let mut stream = Delta::default();
    let request = DeltaDiscoveryRequest {
        type_url: CDS.into(),
        resource_names_subscribe: vec!["a".into(), "b".into(), "unknown".into()],
        ..Default::default()
    };
    stream.on_request(&request);
    let first = stream.next_response(&both).unwrap();
    assert_eq!(first.resources.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(first.removed_resources, ["unknown"]);
    assert!(stream.next_response(&both).is_none());
    let second = stream.next_response(&both.next(&mesh(&["a"]))).unwrap();
    assert_eq!((second.resources.len(), &second.removed_resources[..]), (0, &["b".to_owned()][..]));

    // A client that comes back with what it has gets nothing new.
    let mut again = Delta::default();
    let versions = first.resources.iter().map(|one| (one.name.clone(), one.version.clone())).collect();
    let names = vec!["a".to_owned(), "b".to_owned()];
    again.on_request(&DeltaDiscoveryRequest {
        resource_names_subscribe: names,
        initial_resource_versions: versions,
        ..request
    });
    assert!(again.next_response(&both).is_none());
}

#[test]
fn a99_19_a_list_is_unwrapped_for_the_incremental_protocol() {
    let snapshot = Snapshot::default().next(&[aggregate_resource("list", ["a"])]);
    let mut stream = Delta::default();
    stream.on_request(&DeltaDiscoveryRequest {
        type_url: AGGREGATE.into(),
        resource_names_subscribe: vec!["list".into()],
        ..Default::default()
    });
    let response = stream.next_response(&snapshot).unwrap();
    assert_eq!(response.resources[0].name, "list");
    assert_eq!(response.resources[0].resource.as_ref().unwrap().type_url, AGGREGATE);
}

#[tokio::test]
async fn removals_wait_until_clients_had_time_to_leave() {
    let linger = std::time::Duration::from_millis(50);
    let plane = Plane::new(linger, linger);
    plane.apply(&mesh(&["a"]));
    let stream = plane.open::<Sotw>(None);
    let changes = plane.apply(&mesh(&["b"]));
    let names = |change: usize| (changes.0[change].added.clone(), changes.0[change].removed.clone());
    assert_eq!(names(0), (vec!["b".to_owned()], vec!["a".to_owned()]));
    let clusters =
        || plane.current().borrow().of_type(CDS).unwrap().resources.keys().cloned().collect::<Vec<_>>();
    assert_eq!(clusters(), ["a", "b"]);
    let mut current = plane.current();
    current.changed().await.unwrap();
    assert_eq!(clusters(), ["b"]);
    plane.close(stream);
    assert!(plane.clients().is_empty());
}
