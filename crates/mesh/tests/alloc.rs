//! A pick through the whole tree allocates nothing: route table, cluster manager, drops, circuit breaking, priority,
//! localities, round robin, authority rewriting; and so does a pick of a session.
#![allow(missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_balancer::api::{CallAttributes, CallTicket, Code, OverrideHost, PickArgs, PickResult};
use proxyless_balancer::testing::NoWake;
use proxyless_balancer::tree::{ConnectionEvent, TreeConfig, TreeEffect};
use proxyless_mesh::channel_core::{ChannelConfig, ChannelCore, ChannelEffect, ChannelInput, DataPlane};
use proxyless_mesh::dns::DnsConfig;
use proxyless_mesh::policies::cluster_impl::CircuitRegistry;
use proxyless_mesh::security::ClusterTls;
use proxyless_sans_io::metrics::Meter;
use proxyless_sans_io::{Rng, Time};
use proxyless_xds::Gates;
use proxyless_xds::client::WatchEvent;
use proxyless_xds::lrs::LoadStore;
use proxyless_xds::resource::{
    AggregateClusterConfig, CircuitBreakers, Cluster, ClusterKind, ClusterLoadAssignment, ClusterSpecifier,
    DropCategory, EndpointExtras, EndpointHealth, FilterOverrides, HttpConnectionManager, HttpFilter,
    HttpFilterConfig, LbEndpoint, LbPolicy, Listener, ListenerKind, Locality, LocalityEndpoints, LrsServer,
    MetricSelection, OverrideHostStatus, PathMatcher, Resource, ResourceType, Route, RouteAction,
    RouteConfiguration, RouteMatch, RouteSource, VirtualHost,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is handed to the system's allocator unchanged; the counter is a plain thread-local number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn resource(resource_type: ResourceType, name: &str) -> Resource {
    match (resource_type, name) {
        (ResourceType::Listener, _) => Resource::Listener(Arc::new(listener())),
        (ResourceType::Cluster, "aggregate") => {
            let clusters = vec!["near".into(), "far".into()];
            let kind = ClusterKind::Aggregate(Arc::new(AggregateClusterConfig { clusters }));
            Resource::Cluster(Arc::new(cluster(kind)))
        }
        (ResourceType::Cluster, _) => {
            Resource::Cluster(Arc::new(cluster(ClusterKind::Eds { service_name: None })))
        }
        (ResourceType::ClusterLoadAssignment, _) => Resource::ClusterLoadAssignment(Arc::new(assignment())),
        other => panic!("nobody should ask for {other:?}"),
    }
}

fn listener() -> Listener {
    let route = Route {
        name: "r".into(),
        matcher: RouteMatch {
            path: PathMatcher::Prefix { prefix: "/".into(), case_sensitive: true },
            headers: Vec::new(),
            fraction_per_million: None,
        },
        action: Some(RouteAction {
            cluster: ClusterSpecifier::Cluster("aggregate".into()),
            max_stream_duration: None,
            hash_policies: Vec::new(),
            retry_policy: None,
            auto_host_rewrite: true,
        }),
        filter_overrides: FilterOverrides::default(),
    };
    let virtual_host = VirtualHost {
        name: "v".into(),
        domains: vec!["*".into()],
        routes: vec![route],
        retry_policy: None,
        filter_overrides: FilterOverrides::default(),
    };
    let routes =
        RouteSource::Inline(Arc::new(RouteConfiguration { virtual_hosts: vec![Arc::new(virtual_host)] }));
    let manager =
        HttpConnectionManager { routes, max_stream_duration: None, filters: Arc::new([session_filter()]) };
    Listener { kind: ListenerKind::Api(manager) }
}

/// Without it there are no sessions, and the policies keep nothing for them.
fn session_filter() -> HttpFilter {
    HttpFilter { name: "sessions".into(), config: HttpFilterConfig::StatefulSession(None) }
}

fn cluster(kind: ClusterKind) -> Cluster {
    Cluster {
        kind,
        lb_policy: Some(LbPolicy::WrrLocality(Box::new(LbPolicy::RoundRobin))),
        lrs_server: Some(LrsServer::SelfServer),
        lrs_report_endpoint_metrics: MetricSelection::default(),
        circuit_breakers: CircuitBreakers::default(),
        idle_timeout: Duration::from_secs(3600),
        outlier_detection: None,
        override_host_status: OverrideHostStatus::default(),
        tls: None,
        http_connect: false,
    }
}

fn assignment() -> ClusterLoadAssignment {
    let endpoint = |n: u8| LbEndpoint {
        addresses: Arc::new([SocketAddr::from((Ipv4Addr::new(10, 0, 0, n), 80))]),
        weight: 1,
        health: EndpointHealth::Healthy,
        extras: EndpointExtras::named(format!("host-{n}")),
    };
    let locality = |region: &str, numbers: std::ops::Range<u8>| LocalityEndpoints {
        locality: Arc::new(Locality { region: region.into(), ..Locality::default() }),
        weight: 2,
        endpoints: numbers.map(endpoint).collect(),
    };
    ClusterLoadAssignment {
        priorities: vec![vec![locality("a", 1..5), locality("b", 5..9)], vec![locality("c", 9..12)]],
        drops: vec![DropCategory { category: "some".into(), per_million: 100_000 }],
    }
}

/// A channel whose effects are all applied at once.
fn serving_channel() -> (ChannelCore, DataPlane, Vec<Arc<LoadStore>>) {
    let config = ChannelConfig {
        meter: Meter::default(),
        listener_name: "service".into(),
        authority: "service".into(),
        tree: TreeConfig::default(),
        failover_timeout: Duration::from_secs(10),
        dns: DnsConfig::default(),
        gates: Gates::default(),
        circuits: CircuitRegistry::default(),
        cluster_tls: ClusterTls::default(),
        idle_timeout: None,
        seed: 1,
    };
    let mut core = ChannelCore::new(config, Arc::new(NoWake));
    let (mut plane, mut loads) = (None, Vec::new());
    core.handle(Time::ZERO, ChannelInput::ExitIdle);
    while let Some(effect) = core.poll_effect() {
        match effect {
            ChannelEffect::Watch { watch, resource_type, name } => {
                let event = WatchEvent::Changed(Ok(resource(resource_type, &name)));
                core.handle(Time::ZERO, ChannelInput::Resources { events: vec![(watch, event)] });
            }
            ChannelEffect::Connection(TreeEffect::Connect { subchannel: connection, attempt, .. }) => {
                let event = ConnectionEvent::Ready(Arc::new(()));
                let events = vec![(connection, attempt, event)];
                core.handle(Time::ZERO, ChannelInput::Connections { events });
            }
            ChannelEffect::Publish(new) => plane = Some(new),
            ChannelEffect::RegisterLoad { store } => loads.push(store),
            _ => {}
        }
    }
    (core, plane.expect("a snapshot"), loads)
}

#[test]
fn picks_through_the_whole_tree_allocate_nothing() {
    let (_core, plane, loads) = serving_channel();
    let routes = plane.routes.as_ref().expect("routes");
    let headers = HeaderMap::new();
    let mut rng = Rng::new(3);
    let (mut completed, mut dropped) = (0, 0);
    let mut rpc = || {
        let selection = routes.select("/s/m", &headers, &mut rng).expect("a route");
        let cluster = selection.cluster.hold();
        let attributes = CallAttributes {
            cluster: cluster.id(),
            auto_host_rewrite: selection.route.auto_host_rewrite,
            ..CallAttributes::default()
        };
        let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
        match plane.picker.pick(&mut args) {
            PickResult::Complete(pick) => {
                assert!(pick.authority.is_some());
                CallTicket::start(pick).finish(Code::Ok);
                completed += 1;
            }
            PickResult::Drop(_) => dropped += 1,
            other => panic!("{other:?}"),
        }
    };
    // The first calls of a thread allocate its stripes.
    (0..100).for_each(|_| rpc());
    let before = ALLOCATIONS.get();
    (0..10_000).for_each(|_| rpc());
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(completed > 8_500 && dropped > 800, "{completed} completed, {dropped} dropped");
    // All of them were counted for load reports.
    let mut counted = [0; 2];
    for view in loads.iter().map(|store| store.view()) {
        counted[0] += view.localities.values().map(|of| of.succeeded).sum::<u64>();
        counted[1] += view.categories.values().sum::<u64>();
    }
    assert_eq!(counted, [completed, dropped]);
    // The counter works.
    drop(std::hint::black_box(Box::new(1)));
    assert!(ALLOCATIONS.get() > before);
}

#[test]
fn a75_picks_of_sessions_allocate_nothing() {
    let (_core, plane, _stores) = serving_channel();
    let routes = plane.routes.as_ref().expect("routes");
    let headers = HeaderMap::new();
    let mut rng = Rng::new(3);
    let cluster = routes.select("/s/m", &headers, &mut rng).expect("a route").cluster.hold();
    let wanted = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 7), 80));
    let session = OverrideHost::new(Arc::new([wanted]), Time::ZERO);
    let mut completed = 0;
    let mut before = ALLOCATIONS.get();
    for number in 0..1_100 {
        // The first calls of a thread allocate its stripes.
        if number == 100 {
            before = ALLOCATIONS.get();
        }
        let attributes = CallAttributes {
            cluster: cluster.id(),
            override_host: Some(session.clone()),
            ..CallAttributes::default()
        };
        let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
        if let PickResult::Complete(pick) = plane.picker.pick(&mut args) {
            assert_eq!(pick.target.address, wanted);
            assert!(args.attributes.override_host.is_some_and(|session| session.actual.is_some()));
            completed += 1;
        }
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(completed > 800, "{completed} completed, the others were dropped");
}
