//! A channel under a steady load, whose control plane is replaced by a hostile one and returns.

use std::time::Duration;

use proxyless::{XdsChannel, XdsChannelBuilder};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane, Resource};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::common::{ask, builder, mesh};
use super::hostile::{Attack, Hostile, Seen};
use super::memory::Measured;

/// The interval of RPCs: short enough to notice an outage, and long compared to the measurements.
const PACE: Duration = Duration::from_millis(20);

/// Far beyond the backoff of a client that has failed a few times, on a machine that is busy with others.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(60);

/// The number of concurrent worlds.
static WORLDS: Semaphore = Semaphore::const_new(16);

pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) channel: XdsChannel,
    /// The backend before the attack; `new` is the one after it.
    pub(crate) old: Backend,
    new: Backend,
    load: Option<Load>,
}

/// RPCs, one after the other.
struct Load {
    stop: CancellationToken,
    task: JoinHandle<(usize, Vec<Status>)>,
}

impl Load {
    fn start(channel: XdsChannel) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let (mut succeeded, mut failed) = (0, Vec::new());
            let mut pace = tokio::time::interval(PACE);
            while !stopped.is_cancelled() {
                pace.tick().await;
                match ask(&channel).await {
                    Ok(_) => succeeded += 1,
                    Err(status) => failed.push(status),
                }
            }
            (succeeded, failed)
        });
        Self { stop, task }
    }
}

/// Sends RPCs until one is answered by this backend.
async fn until_answered_by(channel: &XdsChannel, backend: &str, what: &str) {
    let mut last = None;
    let answered = async {
        let mut pace = tokio::time::interval(PACE);
        while last.as_ref().is_none_or(|last: &Result<String, Status>| last.as_deref().ok() != Some(backend))
        {
            pace.tick().await;
            last = Some(ask(channel).await);
        }
    };
    if tokio::time::timeout(RECOVERY_PATIENCE, answered).await.is_err() {
        panic!("{what}: not answered by {backend:?} in {RECOVERY_PATIENCE:?}; the last answer: {last:?}");
    }
}

impl World {
    /// A channel with a good configuration, whose control plane is gone.
    pub(crate) async fn configured(options: impl FnOnce(XdsChannelBuilder) -> XdsChannelBuilder) -> Self {
        let mut world = Self::unconfigured(options).await;
        world.plane.restart().await.expect("the port is its own");
        until_answered_by(&world.channel, "old", "before the attack").await;
        world.plane.stop().await;
        world.load = Some(Load::start(world.channel.clone()));
        world
    }

    /// A channel without a configuration.
    pub(crate) async fn unconfigured(options: impl FnOnce(XdsChannelBuilder) -> XdsChannelBuilder) -> Self {
        let (old, new) =
            (Backend::start("old").await.expect("a port"), Backend::start("new").await.expect("a port"));
        let plane = mesh(&[&old]).await;
        plane.stop().await;
        let channel = options(builder(&plane)).build().expect("a channel");
        Self { plane, channel, old, new, load: None }
    }

    pub(crate) fn attack(&self, attack: Attack) -> Hostile {
        Hostile::start(self.plane.address(), attack)
    }

    /// The resources in use, as the good control plane has sent them.
    pub(crate) fn resources(&self) -> Vec<Resource> {
        vec![
            listener(super::common::SERVICE, "route").into(),
            simple_route_config("route", "cluster").into(),
            eds_cluster("cluster").into(),
            priorities("cluster", [[&self.old]]).into(),
        ]
    }

    /// A good control plane returns with a different backend: RPCs go there, and none has failed.
    pub(crate) async fn recovers(self, what: &str, hostile: Hostile) {
        hostile.stop(what).await;
        self.recovers_alone(what).await;
    }

    /// The same after a measurement, which other tests may make meanwhile.
    pub(crate) async fn recovers_after(self, memory: Measured, what: &str, hostile: Hostile) {
        hostile.stop(what).await;
        drop(memory);
        self.recovers_alone(what).await;
    }

    async fn recovers_alone(self, what: &str) {
        self.plane.set(priorities("cluster", [[&self.new]]));
        self.plane.restart().await.expect("the port is its own");
        until_answered_by(&self.channel, "new", what).await;
        if let Some(Load { stop, task }) = self.load {
            stop.cancel();
            let (succeeded, failed) = task.await.expect("no panic");
            assert!(failed.is_empty() && succeeded > 0, "{what}: {succeeded} succeeded, failed: {failed:?}");
        }
    }
}

/// A channel with a good configuration meets the attack until `enough`, and recovers.
pub(crate) async fn survives(what: &str, attack: Attack, enough: impl Fn(&Seen) -> bool) -> Seen {
    let _place = WORLDS.acquire().await.expect("it is never closed");
    let world = World::configured(|builder| builder).await;
    let hostile = world.attack(attack);
    let seen = hostile.wait(what, enough).await;
    world.recovers(what, hostile).await;
    seen
}

/// A channel without a configuration meets the attack until `enough`, and gets one.
pub(crate) async fn starts_after(what: &str, attack: Attack, enough: impl Fn(&Seen) -> bool) {
    let _place = WORLDS.acquire().await.expect("it is never closed");
    let world = World::unconfigured(|builder| builder).await;
    let hostile = world.attack(attack);
    let first = tokio::spawn({
        let channel = world.channel.clone();
        // It fails, or waits until it can be sent.
        async move { drop(ask(&channel).await) }
    });
    hostile.wait(what, enough).await;
    world.recovers(what, hostile).await;
    first.await.expect("no panic");
}
