//! `inner count`: runs one case a given number of times, so that callgrind can count its instructions.

use bytes::Bytes;
use clap::ValueEnum;
use proxyless_sans_io::Rng;

use crate::call::{self, Recorded};
use crate::mesh::{Mesh, Moved, Policy};
use crate::pick::{Work, calls};
use crate::service::BoxError;
use crate::shared::WARM_UP;
use crate::update::{BATCH, LINGER};
use crate::world::World;

/// A case to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// Route, pick, start and end of a call.
    Rpc,
    /// The same with least_request.
    RpcLeastRequest,
    /// The same with weighted_round_robin.
    RpcWeightedRoundRobin,
    /// The same with random_subsetting.
    RpcRandomSubsetting,
    /// 10,000 endpoints in an idle priority: the same bytes again.
    Same,
    /// 10,000 endpoints in an idle priority: one changes its address.
    OneIdle,
    /// 10,000 connected endpoints: one changes its address, and the new one is connected.
    OneConnected,
    /// 10,000 connected endpoints: all change their addresses, and the new ones are connected.
    AllConnected,
    /// 1,000 clusters of ten connected endpoints: one endpoint changes its address, and the new one is connected.
    Clusters,
    /// The same with ten clusters.
    FewClusters,
    /// The same with 10,000 clusters.
    ManyClusters,
    /// Ten clusters: the circuit breaker of one changes.
    FewClustersCds,
    /// The same with 10,000 clusters.
    ManyClustersCds,
    /// A unary RPC of the whole client, over loopback.
    Unary,
    /// The same with the recorder of `/metrics`.
    UnaryMetrics,
    /// The same with the metrics of OpenTelemetry.
    UnaryOtel,
    /// A message and its response on a stream of the whole client, over loopback.
    Message,
}

impl Case {
    /// The cases that the guard counts.
    pub(crate) const GUARDED: [Self; 16] = [
        Self::Rpc,
        Self::RpcLeastRequest,
        Self::RpcWeightedRoundRobin,
        Self::RpcRandomSubsetting,
        Self::Same,
        Self::OneIdle,
        Self::OneConnected,
        Self::Clusters,
        Self::FewClusters,
        Self::ManyClusters,
        Self::FewClustersCds,
        Self::ManyClustersCds,
        Self::Unary,
        Self::UnaryMetrics,
        Self::UnaryOtel,
        Self::Message,
    ];

    /// Its name in reports and bounds.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Rpc => "rpc",
            Self::RpcLeastRequest => "rpc/least_request",
            Self::RpcWeightedRoundRobin => "rpc/weighted_round_robin",
            Self::RpcRandomSubsetting => "rpc/random_subsetting",
            Self::Same => "update/10k/same/idle",
            Self::OneIdle => "update/10k/one/idle",
            Self::OneConnected => "update/10k/one/connected",
            Self::AllConnected => "update/10k/all/connected",
            Self::Clusters => "clusters/1k/one",
            Self::FewClusters => "clusters/10/one",
            Self::ManyClusters => "clusters/10k/one",
            Self::FewClustersCds => "clusters/10/cds_one",
            Self::ManyClustersCds => "clusters/10k/cds_one",
            Self::Unary => "client/unary",
            Self::UnaryMetrics => "client/unary/metrics",
            Self::UnaryOtel => "client/unary/otel",
            Self::Message => "client/message",
        }
    }

    /// The unit of its numbers.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Rpc => "one RPC without IO: route, pick through the full tree, start and end of the call",
            Self::RpcLeastRequest => "one RPC without IO, with least_request",
            Self::RpcWeightedRoundRobin => "one RPC without IO, with weighted_round_robin",
            Self::RpcRandomSubsetting => "one RPC without IO, with random_subsetting",
            Self::Same => "a response with 10,000 endpoints whose bytes equal the cached ones",
            Self::OneIdle => "a response in which one of 10,000 endpoints of an idle priority has moved",
            Self::OneConnected => {
                "a response in which one of 10,000 connected endpoints has moved, and its new connection"
            }
            Self::Unary => "one unary RPC of the whole client, without the server and the kernel",
            Self::UnaryMetrics => "one unary RPC that is recorded for /metrics, otherwise the same",
            Self::UnaryOtel => "one unary RPC that is recorded for OpenTelemetry, otherwise the same",
            Self::Message => {
                "one message and its response on a stream, of the whole client, without the server and the kernel"
            }
            Self::AllConnected => {
                "a response in which all of 10,000 connected endpoints have moved, and their new connections"
            }
            Self::Clusters => {
                "a response in which one endpoint of one of 1,000 connected clusters has moved, and its connection"
            }
            Self::FewClusters => {
                "a response in which one endpoint of one of 10 connected clusters has moved, and its connection"
            }
            Self::ManyClusters => {
                "a response in which one endpoint of one of 10,000 connected clusters has moved, and its connection"
            }
            Self::FewClustersCds => "a response in which one of 10 Clusters has another circuit breaker",
            Self::ManyClustersCds => "a response in which one of 10,000 Clusters has another circuit breaker",
        }
    }

    /// The numbers of runs in the shorter and the longer count.
    pub(crate) fn iterations(self) -> [usize; 2] {
        match self {
            Self::Same | Self::OneIdle | Self::OneConnected | Self::AllConnected => [2, 6],
            Self::ManyClustersCds => [2, 22],
            // The setup of 1,000 clusters varies by more than a few runs cost.
            Self::Clusters | Self::FewClusters | Self::ManyClusters | Self::FewClustersCds => [10, 90],
            Self::Unary | Self::UnaryMetrics | Self::UnaryOtel | Self::Message => [500, 2_500],
            _ => [1_000, 11_000],
        }
    }

    /// Prepares the case; each call of the result runs it once.
    pub(crate) fn prepare(self) -> Result<Box<dyn FnMut()>, BoxError> {
        Ok(match self {
            Self::Rpc => rpcs(Policy::RoundRobin),
            Self::RpcLeastRequest => rpcs(Policy::LeastRequest),
            Self::RpcWeightedRoundRobin => rpcs(Policy::WeightedRoundRobin),
            Self::RpcRandomSubsetting => rpcs(Policy::RandomSubsetting),
            Self::Same => updates(Mesh::idle(10_000), Moved::None),
            Self::OneIdle => updates(Mesh::idle(10_000), Moved::One),
            Self::OneConnected => updates(Mesh::connected(10_000), Moved::One),
            Self::Clusters => one_of(1_000),
            Self::FewClusters => one_of(10),
            Self::ManyClusters => one_of(10_000),
            Self::AllConnected => updates(Mesh::connected(10_000), Moved::All),
            Self::FewClustersCds => one_cluster_of(10),
            Self::ManyClustersCds => one_cluster_of(10_000),
            Self::Unary => call::unary(Recorded::Not)?,
            Self::UnaryMetrics => call::unary(Recorded::ByStore)?,
            Self::UnaryOtel => call::unary(Recorded::ByOtel)?,
            Self::Message => call::message()?,
        })
    }
}

/// One RPC per run.
fn rpcs(policy: Policy) -> Box<dyn FnMut()> {
    let world = World::serving(&Mesh { policy, ..Mesh::connected(9) });
    let mut rng = Rng::new(1);
    if let Some(plane) = &world.plane {
        // The first calls of a thread allocate its stripes.
        calls(plane, Work::Rpc, WARM_UP, &mut rng);
    }
    Box::new(move || {
        if let Some(plane) = &world.plane {
            calls(plane, Work::Rpc, 1, &mut rng);
        }
    })
}

/// Changes an endpoint of one of so many clusters.
fn one_of(clusters: usize) -> Box<dyn FnMut()> {
    updates(Mesh { clusters, ..Mesh::connected(10) }, Moved::One)
}

/// Changes one of so many Clusters.
fn one_cluster_of(clusters: usize) -> Box<dyn FnMut()> {
    let mesh = Mesh { clusters, ..Mesh::connected(10) };
    alternate(&mesh, [mesh.clusters_with(Moved::One), mesh.clusters_with(Moved::None)])
}

/// Changes an address, and changes it back.
fn updates(mesh: Mesh, moved: Moved) -> Box<dyn FnMut()> {
    alternate(&mesh, [mesh.endpoints(moved), mesh.endpoints(Moved::None)])
}

/// Delivers two responses in turns.
fn alternate(mesh: &Mesh, mut responses: [Bytes; 2]) -> Box<dyn FnMut()> {
    let mut world = World::serving(mesh);
    Box::new(move || {
        let [next, _] = &responses;
        world.deliver(next.clone());
        responses.reverse();
        world.connect(BATCH);
        world.pass(LINGER);
    })
}

pub(crate) fn run(case: Case, iterations: usize) -> Result<(), BoxError> {
    let mut once = case.prepare()?;
    for _ in 0..iterations {
        once();
    }
    Ok(())
}
