//! `inner pick`: a pick through the full tree.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use http::HeaderMap;
use proxyless_balancer::api::{CallAttributes, CallTicket, Code, PickArgs, PickResult};
use proxyless_mesh::channel_core::DataPlane;
use proxyless_sans_io::Rng;

use crate::alloc::allocations;
use crate::clock::cpu;
use crate::mesh::{Mesh, Policy};
use crate::report::Report;
use crate::world::World;

const ROUNDS: usize = 15;
const CALLS: u32 = 400_000;
const PATH: &str = "/service-0/method";

/// The work per call.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Selects the route, picks, starts the call and ends it.
    Rpc,
    /// Only picks.
    Pick,
}

pub(crate) fn run(report: &mut Report) {
    let plain = Mesh::connected(9);
    let aggregate = Mesh { clusters: 2, aggregate: true, ..plain };
    let with_detection = |mesh| Mesh { outlier_detection: true, ..mesh };
    for (name, mesh) in [
        ("plain", plain),
        ("plain+outlier_detection", with_detection(plain)),
        ("aggregate", aggregate),
        ("aggregate+outlier_detection", with_detection(aggregate)),
        ("least_request", Mesh { policy: Policy::LeastRequest, ..plain }),
        ("weighted_round_robin", Mesh { policy: Policy::WeightedRoundRobin, ..plain }),
        ("random_subsetting", Mesh { policy: Policy::RandomSubsetting, ..plain }),
        ("pick_first", Mesh { policy: Policy::PickFirst, ..plain }),
    ] {
        let (world, other) = (World::serving(&mesh), World::serving(&mesh));
        let (Some(plane), Some(other)) = (&world.plane, &other.plane) else { continue };
        for (what, work) in [("rpc", Work::Rpc), ("pick", Work::Pick)] {
            measure(report, &format!("pick/{name}/{what}"), [plane, other], &|plane, count, rng| {
                calls(plane, work, count, rng);
            });
        }
    }
}

/// Makes a number of calls with a subject.
type Calls<'a, S> = &'a (dyn Fn(&S, u32, &mut Rng) + Sync);

/// One thread, two with the same subject, and two with subjects that share nothing, which is the limit of the machine.
pub(crate) fn measure<S: Sync + ?Sized>(
    report: &mut Report,
    case: &str,
    [one, other]: [&S; 2],
    calls: Calls<'_, S>,
) {
    let mut best = [Round::WORST; 3];
    let mut allocated = 0;
    for _ in 0..ROUNDS {
        for (subjects, best) in [&[one][..], &[one, one], &[one, other]].into_iter().zip(&mut best) {
            let round = round(subjects, calls);
            best.cpu = best.cpu.min(round.cpu);
            best.wall = best.wall.min(round.wall);
            allocated += round.allocations;
        }
    }
    let [one, two, apart] = best;
    let scaling = |two: Round| 2.0 * one.wall.as_secs_f64() / two.wall.as_secs_f64();
    let per_call = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(CALLS);
    let calls = f64::from(CALLS) * (ROUNDS * 5) as f64;
    report.case(
        case,
        &[
            ("1_thread", "ns", per_call(one.cpu)),
            ("2_threads", "ns", per_call(two.cpu)),
            ("scaling", "x", scaling(two)),
            ("scaling_apart", "x", scaling(apart)),
            ("scaling_to_apart", "x", scaling(two) / scaling(apart)),
            ("allocations", "/call", allocated as f64 / calls),
        ],
    );
}

/// The slowest thread of a round counts.
#[derive(Clone, Copy)]
struct Round {
    cpu: Duration,
    wall: Duration,
    allocations: u64,
}

impl Round {
    const WORST: Self = Self { cpu: Duration::MAX, wall: Duration::MAX, allocations: 0 };
}

fn round<S: Sync + ?Sized>(subjects: &[&S], calls: Calls<'_, S>) -> Round {
    let barrier = &Barrier::new(subjects.len());
    let one = move |seed, subject| {
        let mut rng = Rng::new(seed);
        calls(subject, CALLS / 10, &mut rng);
        barrier.wait();
        let (before, wall, start) = (allocations(), Instant::now(), cpu());
        calls(subject, CALLS, &mut rng);
        Round { cpu: cpu() - start, wall: wall.elapsed(), allocations: allocations() - before }
    };
    let rounds: Vec<Round> = std::thread::scope(|scope| {
        let running = (0..).zip(subjects).map(|(seed, subject)| scope.spawn(move || one(seed, *subject)));
        let running: Vec<_> = running.collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    rounds.iter().fold(Round { cpu: Duration::ZERO, wall: Duration::ZERO, allocations: 0 }, |sum, round| {
        Round {
            cpu: sum.cpu.max(round.cpu),
            wall: sum.wall.max(round.wall),
            allocations: sum.allocations + round.allocations,
        }
    })
}

/// Makes this many calls, all of which must complete.
pub(crate) fn calls(plane: &DataPlane, work: Work, calls: u32, rng: &mut Rng) {
    let Ok(routes) = &plane.routes else { return };
    let headers = HeaderMap::new();
    let Ok(first) = routes.select(PATH, &headers, rng) else { return };
    let cluster = first.cluster.id();
    for _ in 0..calls {
        let attributes = match work {
            Work::Pick => CallAttributes { cluster, ..CallAttributes::default() },
            Work::Rpc => {
                let Ok(selection) = routes.select(PATH, &headers, rng) else { return };
                // As RPCs do until they are committed.
                let claim = selection.cluster.hold();
                CallAttributes { cluster: claim.id(), ..CallAttributes::default() }
            }
        };
        let mut args = PickArgs { path: PATH, headers: &headers, attributes, rng };
        match (plane.picker.pick(&mut args), work) {
            (PickResult::Complete(pick), Work::Rpc) => CallTicket::start(pick).finish(Code::Ok),
            (PickResult::Complete(pick), Work::Pick) => drop(black_box(pick)),
            (other, _) => panic!("every pick completes: {other:?}"),
        }
    }
}
