//! `inner memory`: the bytes that endpoints, clusters and channels hold.

use crate::alloc::live;
use crate::mesh::Mesh;
use crate::report::Report;
use crate::world::World;

const ENDPOINTS: usize = 10_000;
const CLUSTERS: usize = 1_000;

/// The memory of a world, or of a part of one.
#[derive(Clone, Copy)]
struct Held {
    total: i64,
    /// Without the xDS client: the memory that the channel alone keeps alive.
    channel: i64,
}

pub(crate) fn run(report: &mut Report) {
    let few = held(|| World::serving(&FEW));
    let connecting = held(|| World::new(&Mesh::connected(ENDPOINTS + 3)));
    let cases = [
        ("endpoint/idle", each(held(|| World::serving(&Mesh::idle(ENDPOINTS))), few, ENDPOINTS)),
        ("endpoint/connecting", each(connecting, few, ENDPOINTS)),
        ("endpoint/connected", endpoint(few)),
        ("cluster_of_3_endpoints", cluster(few)),
        ("channel_of_3_endpoints", few),
    ];
    for (case, held) in cases {
        let Held { total, channel } = held;
        let numbers = [("total", "bytes", total as f64), ("channel", "bytes", channel as f64)];
        report.case(&format!("memory/{case}"), &numbers);
    }
}

/// The bounded numbers, each with its name and its meaning.
pub(crate) fn bounded() -> [(&'static str, &'static str, u64); 3] {
    let few = held(|| World::serving(&FEW));
    let bytes = |bytes: i64| bytes.unsigned_abs();
    [
        (
            "endpoint/connected",
            "of a connected endpoint, the xDS client included",
            bytes(endpoint(few).total),
        ),
        (
            "cluster",
            "of a cluster of 3 connected endpoints, the xDS client included",
            bytes(cluster(few).total),
        ),
        (
            "channel",
            "of a channel with 3 connected endpoints, without IO and the xDS client",
            bytes(few.channel),
        ),
    ]
}

const FEW: Mesh = Mesh::connected(3);

fn endpoint(few: Held) -> Held {
    each(held(|| World::serving(&Mesh::connected(ENDPOINTS + 3))), few, ENDPOINTS)
}

fn cluster(few: Held) -> Held {
    each(held(|| World::serving(&Mesh { clusters: CLUSTERS + 1, ..FEW })), few, CLUSTERS)
}

/// One of the objects by which a large world differs from a small one.
fn each(large: Held, small: Held, number: usize) -> Held {
    let each = |large: i64, small: i64| (large - small) / number as i64;
    Held { total: each(large.total, small.total), channel: each(large.channel, small.channel) }
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
