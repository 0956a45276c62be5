//! Invariants under all faults: everything recovers in time, servers are not flooded, nothing leaks.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::backend::Backend;
use crate::fault::{Fault, Role};
use crate::load::{Load, Rate};
use crate::plane::Counts;
use crate::storm::Storm;
use crate::world::{Host, PATIENCE, World, eventually};
use crate::{loads, memory};

/// How much more may be held after a fault than before it: rings of events that were not full, buffers that grew. h2
/// remembers up to 1,024 streams that it reset, for a second of the wall's clock, which is as good as for ever here.
const KEPT: isize = 512 << 10;
/// How much more may be held during a fault than before it.
pub(crate) const MOST_HELD: isize = 24 << 20;
/// How long everything is left alone before what is held is counted: connections close within five seconds.
const SETTLE: Duration = Duration::from_secs(8);
/// One RPC may reach servers so often: it is refused ten times at most.
const MOST_COPIES: usize = 11;
/// The shortest pause between two ADS streams.
const STREAM_PAUSE: f64 = 0.8;
/// Requests on one ADS stream that has no updates: three subscriptions for each of four types, and their ACKs.
const MOST_REQUESTS: usize = 24;

/// What there is while all is well.
pub(crate) struct Baseline {
    held: isize,
    tasks: usize,
}

impl Baseline {
    /// Counts what there is, once nothing happens any more.
    pub(crate) async fn take() -> Self {
        sleep(SETTLE).await;
        Self { held: memory::held(), tasks: tasks() }
    }

    /// Checks that as little is there as before.
    pub(crate) async fn check(&self, what: &str) {
        sleep(SETTLE).await;
        let more = memory::held() - self.held;
        assert!(more < KEPT, "{what}: {more} bytes more are held than before");
        assert!(tasks() <= self.tasks, "{what}: {} tasks instead of {}", tasks(), self.tasks);
    }
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Runs a world through faults, under load, and checks everything.
pub(crate) async fn trial(world: &World, faults: &[(Host, Fault)], mut storm: Storm, rate: Rate) {
    // What is allocated once is allocated now.
    let load = Load::start(&world.channel, rate);
    let start = Instant::now();
    // The stream for load reports too: it has tasks, which would come after they were counted.
    let begun = || {
        world.backends.iter().all(|backend| load.answered(&backend.name).is_some())
            && world.plane.has_reports_since(start)
    };
    assert!(eventually(start + PATIENCE, begun).await, "{}", world.describe(&load).await);
    drop(load);
    let baseline = Baseline::take().await;
    forget_counts(world);
    memory::reset_peak();

    let load = Load::start(&world.channel, rate);
    storm.rage(world, faults, |lasted, changes| check_rates(world, faults, lasted, changes)).await;
    let (_, failed) = load.counts();
    if faults.iter().all(|(host, _)| *host == Host::Plane) {
        let why = load.failure_since(start);
        assert_eq!(failed, 0, "{faults:?}: RPCs failed though only the control plane had a fault: {why:?}");
    }
    for &(host, fault) in faults {
        world.end(host, fault);
    }
    let mut bounds = Bounds::new(faults, storm.lasting, rate);
    // The control plane may have failed before it could announce that a backend is back.
    if storm.churn.is_some() && faults.iter().any(|(host, _)| *host == Host::Plane) {
        bounds.rpcs += bounds.config;
    }
    check_recovery(world, faults, bounds, &load).await;
    if let Some(late) = load.late() {
        panic!("{faults:?}: {late}");
    }
    let most = memory::peak() - baseline.held;
    assert!(most < MOST_HELD, "{faults:?}: {most} bytes were held");
    drop(load);
    forget_counts(world);
    world.network.reap();
    baseline.check(&format!("{faults:?}")).await;
}

/// Like [`trial`] for a channel that nobody has used, so that it has never seen its servers without the faults.
pub(crate) async fn cold_trial(world: &World, faults: &[(Host, Fault)], mut storm: Storm, rate: Rate) {
    let load = Load::start(&world.channel, rate);
    storm.rage(world, faults, |lasted, changes| check_rates(world, faults, lasted, changes)).await;
    for &(host, fault) in faults {
        world.end(host, fault);
    }
    let bounds = Bounds::new(faults, storm.lasting, rate);
    // Without configuration there are no connections either.
    let bounds = Bounds { rpcs: bounds.config + bounds.rpcs, ..bounds };
    check_recovery(world, faults, bounds, &load).await;
    if let Some(late) = load.late() {
        panic!("{faults:?}: {late}");
    }
}

fn forget_counts(world: &World) {
    world.plane.forget_counts();
    world.backends.iter().chain([&world.canary]).for_each(Backend::forget_copies);
    for address in world.all().into_iter().chain([world.plane.address]) {
        world.network.forget_attempts(address);
    }
}

/// Nothing was stormed while it lasted.
fn check_rates(world: &World, faults: &[(Host, Fault)], lasted: Duration, changes: usize) {
    let Counts { streams, requests, load_streams } = world.plane.counts();
    let most_streams = 3 + (lasted.as_secs_f64() / STREAM_PAUSE) as usize;
    assert!(streams <= most_streams, "{faults:?}: {streams} ADS streams in {lasted:?}");
    assert!(load_streams <= most_streams, "{faults:?}: {load_streams} LRS streams in {lasted:?}");
    // The stream that was there before, too.
    let most_requests = (1 + streams) * MOST_REQUESTS + 2 * changes;
    assert!(requests <= most_requests, "{faults:?}: {requests} requests on {streams} streams");
    for &(host, fault) in faults {
        let attempts = world.network.attempts(world.address_of(host));
        // Each time that a server is well, or wanted again, the backoff may begin again.
        let most = fault.most_connections(host.role(), lasted) + 3 * changes;
        assert!(attempts <= most, "{host:?} {fault:?}: {attempts} connections in {lasted:?}, not {most}");
    }
    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    for (rpc, count) in world.backends.iter().flat_map(Backend::copies) {
        *copies.entry(rpc).or_default() += count;
    }
    let most = copies.values().max().copied().unwrap_or_default();
    assert!(most <= MOST_COPIES, "{faults:?}: one RPC was sent {most} times");
}

/// How long recovery may take.
#[derive(Clone, Copy)]
struct Bounds {
    /// Until new configuration is used.
    config: Duration,
    /// Until every backend serves.
    rpcs: Duration,
    /// Until load is reported. Its stream has a backoff of its own.
    reports: Duration,
}

impl Bounds {
    /// Those of the worst of these faults.
    fn new(faults: &[(Host, Fault)], lasted: Duration, rate: Rate) -> Self {
        let of_role = |role| {
            let recovery = |(host, fault): &(Host, Fault)| {
                (host.role() == role).then(|| fault.recovery(role, lasted, rate))
            };
            let longest = faults.iter().filter_map(recovery).max();
            // Each backend is to get one of the RPCs.
            longest.unwrap_or(Duration::from_secs(1)) + rate.every * 8
        };
        let config = of_role(Role::Plane);
        Self { config, rpcs: of_role(Role::Backend), reports: config + loads::INTERVAL }
    }
}

/// New configuration arrives, every backend gets RPCs, they succeed, and load is reported, in the time that the faults
/// allow.
async fn check_recovery(world: &World, faults: &[(Host, Fault)], bounds: Bounds, load: &Load) {
    let ended = Instant::now();
    let (config_by, rpcs_by) = (ended + bounds.config, ended + bounds.rpcs);
    let reports_by = ended + bounds.reports;
    let mut endpoints = world.all();
    endpoints.push(world.canary.address);
    world.set_endpoints(endpoints);

    let answers = |name: &str| load.answered(name).is_some_and(|at| at >= ended);
    let recovered = eventually(config_by.max(rpcs_by).max(reports_by), || {
        let now = Instant::now();
        let configured = answers("canary") || now <= config_by;
        let served = now <= rpcs_by || world.backends.iter().all(|backend| answers(&backend.name));
        assert!(configured, "{faults:?}: no new configuration {:?} after the end", now - ended);
        assert!(served, "{faults:?}: a backend has no RPCs {:?} after the end", now - ended);
        let reported = world.plane.has_reports_since(ended);
        assert!(reported || now <= reports_by, "{faults:?}: no load report {:?} after the end", now - ended);
        reported && answers("canary") && world.backends.iter().all(|backend| answers(&backend.name))
    });
    if !recovered.await {
        panic!(
            "{faults:?}: not recovered {:?} after the end: {}",
            ended.elapsed(),
            world.describe(load).await
        );
    }
    // From now on none fails, but what was on its way to a backend that hung.
    let calm = Instant::now() + Duration::from_secs(2);
    sleep(Duration::from_secs(4)).await;
    if let Some(failure) = load.failure_since(calm) {
        panic!("{faults:?}: an RPC failed after recovery: {failure:?}; {}", world.describe(load).await);
    }
    world.set_endpoints(world.all());
    let left = || world.network.open(world.canary.address) == 0;
    assert!(
        eventually(Instant::now() + Duration::from_secs(8), left).await,
        "{faults:?}: the canary is kept"
    );
}

/// After the channel is dropped nothing is left: no task, no connection.
pub(crate) async fn check_end(world: World) {
    let World { network, plane, backends, canary, channel, .. } = world;
    drop(channel);
    let hosts: Vec<_> =
        backends.iter().map(|backend| backend.address).chain([plane.address, canary.address]).collect();
    let closed = || hosts.iter().all(|&host| network.open(host) == 0);
    let all_closed = eventually(Instant::now() + SETTLE, closed).await;
    // Those that hang or are cut off do not notice.
    hosts.iter().for_each(|&host| network.kill(host));
    if !all_closed || !eventually(Instant::now() + Duration::from_secs(1), || tasks() == 0).await {
        let open: Vec<_> = hosts.iter().map(|&host| (host, network.open(host))).collect();
        panic!("after the end there are {} tasks and the connections {open:?}", tasks());
    }
}
