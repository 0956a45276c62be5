//! The roles of child processes that serve: a backend, and the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use proxyless_testkit::envoy_types::pb::envoy::config::cluster::v3::Cluster;
use proxyless_testkit::envoy_types::pb::envoy::config::listener::v3::Listener;
use proxyless_testkit::envoy_types::pb::envoy::config::route::v3::retry_policy::RetryBackOff;
use proxyless_testkit::envoy_types::pb::envoy::config::route::v3::route::Action;
use proxyless_testkit::envoy_types::pb::envoy::config::route::v3::{RetryPolicy, RouteConfiguration};
use proxyless_testkit::envoy_types::pb::google::protobuf::UInt32Value;
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, Batch, CDS, ControlPlane, EDS, LDS, RDS, Request, Resource};
use tonic::Status;

use crate::child::{say, stdin_lines};
use crate::clock::now;
use crate::topology::FRESH_NODE;
use crate::wire::{Command, Item, PlaneEvent, Policy, Type};

/// Prints `ready`, then serves until standard input ends. `goaway` drains its connections.
pub(crate) async fn backend(name: &str, address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let backend = Backend::start_at(name, address).await?;
    let mut lines = stdin_lines();
    say("ready");
    while let Some(line) = lines.recv().await {
        if line == "goaway" {
            backend.goaway();
        }
    }
    Ok(())
}

/// Prints `ready`, then applies commands and prints the updates that the client accepts.
pub(crate) async fn control_plane(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    // Longer than any run: the request log is read to the end.
    let patience = Duration::from_secs(7 * 24 * 3600);
    let mut lines = stdin_lines();
    let first = lines.recv().await.ok_or("no configuration")?;
    // Nothing is accepted before the next await, when the first configuration is set.
    let plane = ControlPlane::start_at(address).await?.with_patience(patience);
    let versions = std::cell::RefCell::new(BTreeMap::<Type, Vec<(u64, u64)>>::new());
    let mut fresh = BTreeSet::new();
    let follow = plane.wait_for_request(|request| {
        // The first request of a stream has the node.
        if request.message().node.as_ref().is_some_and(|node| node.id == FRESH_NODE) {
            fresh.insert(request.stream());
        }
        if fresh.contains(&request.stream()) {
            return false;
        }
        if let Some(event) = event_of(request, &versions.borrow()) {
            say(&serde_json::to_string(&event).unwrap_or_default());
        }
        false
    });
    let obey = |line: &str| -> Result<(), Box<dyn Error>> {
        match serde_json::from_str(line)? {
            Command::Update { number, items } => {
                plane.change(|batch| items.iter().for_each(|item| apply(batch, item)));
                for item in &items {
                    let of = item.resource_type();
                    let version = plane.version(type_url(of)).parse()?;
                    versions.borrow_mut().entry(of).or_default().push((version, number));
                }
            }
            Command::Goaway => plane.goaway(),
            Command::CloseStreams => plane.close_streams(),
            Command::FailStreams => plane.fail_streams(Status::unavailable("chaos")),
        }
        Ok(())
    };
    obey(&first)?;
    say("ready");
    let obey_all = async {
        while let Some(line) = lines.recv().await {
            obey(&line)?;
        }
        Ok(())
    };
    tokio::select! {
        _ = follow => Ok(()),
        ended = obey_all => ended,
    }
}

/// The acceptance that a request expresses.
fn event_of(request: &Request, versions: &BTreeMap<Type, Vec<(u64, u64)>>) -> Option<PlaneEvent> {
    let of = [Type::Listener, Type::Routes, Type::Cluster, Type::Endpoints]
        .into_iter()
        .find(|of| type_url(*of) == request.type_url())?;
    if request.nonce().is_empty() {
        return None;
    }
    if let Some(error) = request.error() {
        return Some(PlaneEvent::Nack { of, error: error.message.clone(), at: now() });
    }
    let version: u64 = request.version().parse().ok()?;
    let versions = versions.get(&of)?;
    let known = versions.partition_point(|(made, _)| *made <= version);
    let (_, number) = versions[..known].last()?;
    Some(PlaneEvent::Ack { of, number: *number, at: now() })
}

fn type_url(of: Type) -> &'static str {
    match of {
        Type::Listener => LDS,
        Type::Routes => RDS,
        Type::Cluster => CDS,
        Type::Endpoints => EDS,
    }
}

fn apply(batch: &mut Batch, item: &Item) {
    match item {
        Item::Listener { name, routes, cookie } => {
            let manager = connection_manager(routes.as_str());
            let manager = match cookie {
                Some(cookie) => manager.filter(stateful_session(cookie)),
                None => manager,
            };
            batch.set(listener_with(name, &manager));
        }
        Item::Routes { name, clusters, retries } => batch.set(routes(name, clusters, *retries)),
        Item::EdsCluster { name, max_requests, policy } => {
            let cluster = eds_cluster(name).max_requests(*max_requests);
            batch.set(match policy {
                Policy::Default => cluster,
                Policy::Explicit => cluster.lb_policy(wrr_locality(round_robin())).report_load(),
            });
        }
        Item::AggregateCluster { name, children } => {
            batch.set(aggregate_cluster(name, children.iter().map(String::as_str)));
        }
        Item::DnsCluster { name, host } => batch.set(logical_dns_cluster(name, host, 443)),
        Item::Endpoints { cluster, zones } => {
            let zones = zones.iter().map(|zone| {
                locality(&zone.name, zone.endpoints.iter().copied())
                    .weight(zone.weight)
                    .priority(zone.priority)
            });
            batch.set(assignment(cluster, zones));
        }
        Item::Remove { of, name } => batch.remove(type_url(*of), name),
        Item::Garbage { of, name } => batch.set(Resource::garbage(type_url(*of), name)),
        Item::Invalid { of, name } => match of {
            Type::Listener => batch.set(Listener { name: name.clone(), ..Default::default() }),
            Type::Routes => batch.set(route_config(name, [virtual_host(["*"], [route("x").regex("(")])])),
            Type::Cluster => batch.set(Cluster { name: name.clone(), ..Default::default() }),
            Type::Endpoints => {
                let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
                batch.set(assignment(name, [locality("gap", [nowhere]).priority(1)]));
            }
        },
    }
}

fn routes(name: &str, clusters: &[(String, u32)], retries: u32) -> RouteConfiguration {
    let mut route = weighted_route(clusters.iter().map(|(name, weight)| (name.as_str(), *weight)));
    if let Some(Action::Route(action)) = route.action.as_mut().filter(|_| retries > 0) {
        let pause = Some(duration(Duration::from_millis(25)));
        action.retry_policy = Some(RetryPolicy {
            retry_on: "unavailable".into(),
            num_retries: Some(UInt32Value { value: retries }),
            retry_back_off: Some(RetryBackOff { base_interval: pause, max_interval: pause }),
            ..Default::default()
        });
    }
    route_config(name, [virtual_host(["*"], [route])])
}
