//! `inner memory`: the bytes that endpoints, clusters and channels hold.

use crate::alloc::live;
use crate::mesh::Mesh;
use crate::report::Report;
use crate::world::World;

const ENDPOINTS: usize = 10_000;
const CLUSTERS: usize = 1_000;

/// The memory of a world.
#[derive(Clone, Copy)]
struct Held {
    total: i64,
    /// Without the xDS client: the memory that the channel alone keeps alive.
    channel: i64,
}

pub(crate) fn run(report: &mut Report) {
    let few = Mesh::connected(3);
    let small = held(|| World::serving(&few));
    let mut each = |case: &str, large: Held, number: usize| {
        let each = |large: i64, small: i64| (large - small) as f64 / number as f64;
        report.case(
            case,
            &[
                ("total", "bytes", each(large.total, small.total)),
                ("channel", "bytes", each(large.channel, small.channel)),
            ],
        );
    };
    each("memory/endpoint/idle", held(|| World::serving(&Mesh::idle(ENDPOINTS))), ENDPOINTS);
    each("memory/endpoint/connecting", held(|| World::new(&Mesh::connected(ENDPOINTS + 3))), ENDPOINTS);
    each("memory/endpoint/connected", held(|| World::serving(&Mesh::connected(ENDPOINTS + 3))), ENDPOINTS);
    let clusters = Mesh { clusters: CLUSTERS + 1, ..few };
    each("memory/cluster_of_3_endpoints", held(|| World::serving(&clusters)), CLUSTERS);
    report.case(
        "memory/channel_of_3_endpoints",
        &[("total", "bytes", small.total as f64), ("channel", "bytes", small.channel as f64)],
    );
}

fn held(make: impl Fn() -> World) -> Held {
    // Run once before, so that lazy initialisation is not counted.
    drop(make());
    let before = live();
    let mut world = make();
    world.forget_attempts();
    let total = live() - before;
    world.xds = None;
    Held { total, channel: live() - before }
}
