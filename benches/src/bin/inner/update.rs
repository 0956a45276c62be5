//! `inner update`: from the bytes of a response to the published picker.

use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message as _;

use crate::clock::{median, timed};
use crate::mesh::{Mesh, Moved};
use crate::report::Report;
use crate::world::{Cost, World};

/// Longer than a connection without an owner lingers.
pub(crate) const LINGER: Duration = Duration::from_secs(6);

/// The number of connections established per step, as when many are being made.
pub(crate) const BATCH: usize = 100;

/// The responses of one case, sent alternately.
struct Case {
    name: &'static str,
    responses: [Bytes; 2],
}

pub(crate) fn run(report: &mut Report, largest: usize) {
    for (name, size, rounds) in
        [("10", 10, 200), ("1k", 1_000, 60), ("10k", 10_000, 16), ("100k", 100_000, 5)]
    {
        if size > largest {
            continue;
        }
        for (priority, mesh) in [("idle", Mesh::idle(size)), ("connected", Mesh::connected(size))] {
            let mut world = World::new(&mesh);
            let (connections, time) = world.connect(BATCH);
            if priority == "connected" {
                let each = time.as_secs_f64() * 1e6 / connections as f64;
                report.case(&format!("connect/{name}/{BATCH}_at_a_time"), &[("each", "us", each)]);
            }
            for case in cases(|moved| mesh.endpoints(moved)) {
                let label = format!("update/{name}/{}/{priority}", case.name);
                measure(report, &label, &mut world, &case, rounds);
            }
        }
    }
    let mesh = Mesh { clusters: 1_000, ..Mesh::connected(10) };
    let mut world = World::serving(&mesh);
    let [same, one, _] = cases(|moved| mesh.endpoints(moved));
    measure(report, "clusters/1k/same", &mut world, &same, 60);
    measure(report, "clusters/1k/one", &mut world, &one, 60);
    let [same, one, _] = cases(|moved| mesh.all_endpoints(moved));
    measure(report, "clusters/1k/push_all_same", &mut world, &same, 20);
    measure(report, "clusters/1k/push_all_one", &mut world, &one, 20);
    for (name, clusters, rounds) in [("10", 10, 200), ("10k", 10_000, 60)] {
        if clusters > largest {
            continue;
        }
        let mesh = Mesh { clusters, ..Mesh::connected(10) };
        let mut world = World::serving(&mesh);
        let [same, one, _] = cases(|moved| mesh.endpoints(moved));
        measure(report, &format!("clusters/{name}/same"), &mut world, &same, rounds);
        measure(report, &format!("clusters/{name}/one"), &mut world, &one, rounds);
        let responses = [mesh.clusters_with(Moved::One), mesh.clusters_with(Moved::None)];
        let cluster = Case { name: "cluster", responses };
        measure(report, &format!("clusters/{name}/cds_one"), &mut world, &cluster, 10);
    }
}

fn cases(responses: impl Fn(Moved) -> Bytes) -> [Case; 3] {
    let case = |name, moved| Case { name, responses: [responses(moved), responses(Moved::None)] };
    [case("same", Moved::None), case("one", Moved::One), case("all", Moved::All)]
}

fn measure(report: &mut Report, label: &str, world: &mut World, case: &Case, rounds: usize) {
    let (mut costs, mut decodes) = (Vec::new(), Vec::new());
    for round in 0..rounds + 2 {
        let Some(bytes) = case.responses.get(round % 2) else { continue };
        let decode = timed(|| decode(bytes)).1;
        let cost = world.deliver(bytes.clone());
        world.connect(BATCH);
        world.pass(LINGER);
        // The first ones are a warm-up.
        if round >= 2 {
            costs.push(cost);
            decodes.push(decode.as_secs_f64());
        }
    }
    let middle = |value: &dyn Fn(&Cost) -> f64| median(costs.iter().map(value).collect());
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let total = middle(&|cost| micros(cost.xds + cost.mesh));
    let decode = median(decodes) * 1e6;
    report.case(
        label,
        &[
            ("total", "us", total),
            ("xds", "us", middle(&|cost| micros(cost.xds))),
            ("mesh", "us", middle(&|cost| micros(cost.mesh))),
            ("decode", "us", decode),
            ("ratio_to_decode", "x", total / decode),
            ("publishes", "", middle(&|cost| cost.publishes as f64)),
            ("allocations", "", middle(&|cost| cost.allocations as f64)),
        ],
    );
}

/// The work of every client that uses the full message types.
fn decode(bytes: &Bytes) -> usize {
    let Ok(response) = DiscoveryResponse::decode(bytes.clone()) else { return 0 };
    let decoded = response.resources.iter().filter_map(|any| {
        let assignment = ClusterLoadAssignment::decode(&*any.value).ok()?;
        Some(std::hint::black_box(assignment).endpoints.len())
    });
    decoded.sum()
}
