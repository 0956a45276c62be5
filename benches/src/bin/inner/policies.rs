//! `inner policies`: a pick of each policy alone, and of the full tree.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_balancer::api::{
    CallAttributes, Endpoints, Group, OverrideHost, PickArgs, PickResult, Picker, PolicyConfig,
};
use proxyless_balancer::policies::least_request::LeastRequestConfig;
use proxyless_balancer::policies::outlier_detection::OutlierDetectionConfig;
use proxyless_balancer::policies::pick_first::PickFirstConfig;
use proxyless_balancer::policies::priority::{PriorityChild, PriorityConfig};
use proxyless_balancer::policies::random_subsetting::RandomSubsettingConfig;
use proxyless_balancer::policies::ring_hash::RingHashConfig;
use proxyless_balancer::policies::round_robin::RoundRobinConfig;
use proxyless_balancer::policies::weighted_round_robin::WeightedRoundRobinConfig;
use proxyless_balancer::policies::weighted_target::{Target, WeightedTargetConfig};
use proxyless_balancer::testing::{Bench, address, endpoint, endpoints};
use proxyless_mesh::policies::override_host::{OverrideHostConfig, Sessions};
use proxyless_sans_io::{Rng, Time};
use proxyless_xds::resource::OverrideHostStatus;

use crate::mesh::Mesh;
use crate::pick::{Work, calls, measure};
use crate::report::Report;
use crate::world::World;

/// The number of endpoints of each policy.
const ENDPOINTS: u16 = 9;
/// The number of children of a policy with several.
const CHILDREN: u16 = 3;

pub(crate) fn run(report: &mut Report) {
    for (name, config, endpoints) in policies() {
        let (one, other) = (picker(&config, &endpoints), picker(&config, &endpoints));
        let session = (name == "override_host").then(|| Arc::from([address(1)]));
        measure(report, &format!("policies/{name}"), [&*one, &*other], &|picker, count, rng| {
            picks(picker, session.as_ref(), count, rng);
        });
    }
    let tree = Mesh { clusters: 2, aggregate: true, outlier_detection: true, ..Mesh::connected(9) };
    let (one, other) = (World::serving(&tree), World::serving(&tree));
    if let (Some(one), Some(other)) = (&one.plane, &other.plane) {
        measure(report, "policies/full_tree", [one, other], &|plane, count, rng| {
            calls(plane, Work::Pick, count, rng);
        });
    }
}

/// The name of each policy, its configuration and its endpoints. A policy with children has round_robin below it.
fn policies() -> Vec<(&'static str, Arc<dyn PolicyConfig>, Endpoints)> {
    let child = || Arc::new(RoundRobinConfig) as Arc<dyn PolicyConfig>;
    let list = || endpoints(1..=ENDPOINTS);
    let name = |n: u16| Arc::<str>::from(format!("child-{n}"));
    let groups = || {
        let group = |n| {
            let own = (1..=ENDPOINTS).filter(|at| at % CHILDREN == n);
            let endpoints = Endpoints::of(own.map(endpoint));
            Group { name: name(n), locality: None, weight: 1, endpoints }
        };
        Endpoints::Groups((0..CHILDREN).map(group).collect())
    };
    let priority = |n| (name(n), PriorityChild { config: child(), ignore_reresolution_requests: false });
    let targets = (0..CHILDREN).map(|n| (name(n), Target { weight: 1 + u32::from(n), config: child() }));
    let override_host = OverrideHostConfig {
        override_host_status: OverrideHostStatus::default(),
        idle_timeout: Duration::from_secs(3600),
        sessions: Sessions::Used,
        child: child(),
    };
    vec![
        ("pick_first", Arc::new(PickFirstConfig::default()), list()),
        ("round_robin", child(), list()),
        ("weighted_round_robin", Arc::new(WeightedRoundRobinConfig::default()), list()),
        ("least_request", Arc::new(LeastRequestConfig::default()), list()),
        ("ring_hash", Arc::new(RingHashConfig::default()), list()),
        (
            "random_subsetting",
            Arc::new(RandomSubsettingConfig { subset_size: u32::from(ENDPOINTS) - 3, child: child() }),
            list(),
        ),
        ("priority", Arc::new(PriorityConfig::new((0..CHILDREN).map(priority))), groups()),
        ("weighted_target", Arc::new(WeightedTargetConfig { targets: targets.collect() }), groups()),
        (
            "outlier_detection",
            Arc::new(OutlierDetectionConfig { detection: Arc::default(), child: child() }),
            list(),
        ),
        ("override_host", Arc::new(override_host), list()),
    ]
}

/// The picker of a policy all of whose endpoints are connected.
fn picker(config: &Arc<dyn PolicyConfig>, endpoints: &Endpoints) -> Arc<dyn Picker> {
    let mut bench = Bench::new();
    bench.update(Arc::clone(config), endpoints.clone());
    // A ring connects to an endpoint when an RPC hashes to it.
    let mut rng = Rng::new(1);
    for _ in 0..100 {
        bench.ready_all();
        bench.pick_with(CallAttributes { hash: rng.next_u64(), ..CallAttributes::default() });
        bench.advance(Duration::ZERO);
    }
    bench.ready_all();
    Arc::clone(&bench.tree().output().picker)
}

/// Makes this many picks, all of which must complete.
fn picks(picker: &dyn Picker, session: Option<&Arc<[SocketAddr]>>, count: u32, rng: &mut Rng) {
    let headers = HeaderMap::new();
    for _ in 0..count {
        let override_host = session.map(|cookie| OverrideHost::new(Arc::clone(cookie), Time::ZERO));
        let attributes = CallAttributes { hash: rng.next_u64(), override_host, ..CallAttributes::default() };
        let mut args = PickArgs { path: "/service/method", headers: &headers, attributes, rng };
        match picker.pick(&mut args) {
            PickResult::Complete(pick) => drop(black_box(pick)),
            other => panic!("every pick completes: {other:?}"),
        }
    }
}
