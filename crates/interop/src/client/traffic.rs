//! Open-loop traffic: RPCs start on schedule, whatever happens to earlier ones.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Observer;
use super::plan::{Method, Plan};
use super::rpc::{self, Channel, Payload};
use super::stats::Stats;

/// The maximum lag behind the schedule that is caught up.
const MAX_LAG: Duration = Duration::from_secs(1);

/// Which failures of RPCs are tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tolerance {
    Always,
    UntilFirstSuccess,
}

/// An RPC failed after another had succeeded, and the flags forbid that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRpc;

impl fmt::Display for FailedRpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an RPC failed after one had succeeded")
    }
}

impl std::error::Error for FailedRpc {}

#[derive(Clone)]
pub(super) struct Traffic {
    pub(super) plan: Arc<watch::Sender<Plan>>,
    pub(super) stats: Arc<Stats>,
    pub(super) period: Duration,
    pub(super) payload: Payload,
    pub(super) tolerance: Tolerance,
    pub(super) observer: Observer,
}

impl Traffic {
    pub(super) async fn run<T: Channel>(self, channels: Vec<T>) -> FailedRpc {
        let failed = Arc::new(Notify::new());
        let mut senders = JoinSet::new();
        for channel in channels {
            senders.spawn(self.clone().send(channel, failed.clone()));
        }
        failed.notified().await;
        FailedRpc
    }

    /// Sends on one channel for ever.
    async fn send<T: Channel>(self, channel: T, failed: Arc<Notify>) {
        let mut calls = JoinSet::new();
        let mut due = Instant::now();
        loop {
            let plan = self.plan.borrow().clone();
            for method in plan.methods {
                let metadata = plan.metadata.get(&method).cloned().unwrap_or_default();
                let call = rpc::call(channel.clone(), method, metadata, plan.timeout, self.payload);
                calls.spawn(self.clone().observe(method, call, failed.clone()));
            }
            while calls.try_join_next().is_some() {}
            due = (due + self.period).max(Instant::now().checked_sub(MAX_LAG).unwrap_or(due));
            tokio::time::sleep_until(due).await;
        }
    }

    async fn observe(self, method: Method, call: impl Future<Output = rpc::Outcome>, failed: Arc<Notify>) {
        let number = self.stats.start(method);
        let outcome = call.await;
        let succeeded_before = self.stats.finish(number, method, &outcome);
        (self.observer)(number, method, &outcome);
        if outcome.is_failure() && succeeded_before && self.tolerance == Tolerance::UntilFirstSuccess {
            failed.notify_one();
        }
    }
}
