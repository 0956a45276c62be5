//! The RPCs of the demo: those without a session start at a steady rate, whatever happens to earlier ones; those of a
//! user run one after the other, with the user's cookie. Each produces a sample.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proxyless::XdsChannel;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

use super::mesh::{Group, Member, group_of};

/// The deadline of each RPC.
const DEADLINE: Duration = Duration::from_secs(2);

/// The interval between the RPCs of a user.
const USER_EVERY: Duration = Duration::from_millis(50);

/// The time for which all RPCs must go to the expected groups, without failures, to count as settled.
const SETTLED: Duration = Duration::from_millis(500);

/// The result of an RPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Since the load began.
    pub(super) at: Duration,
    /// The user who sent it, if it is part of a session.
    pub(super) user: Option<usize>,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answered by the backend of this name.
    Answered(String),
    Failed(Code, String),
}

impl Sample {
    /// The group that answered, if any.
    pub(super) fn group(&self, members: &[Member]) -> Option<Group> {
        group_of(members, self.answered_by()?)
    }

    /// The backend that answered, if any.
    pub(super) fn answered_by(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Answered(name) => Some(name),
            Outcome::Failed(..) => None,
        }
    }

    pub(super) fn is_failure(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(..))
    }
}

/// The samples in a half-open interval.
pub(super) fn between(samples: &[Sample], from: Duration, to: Duration) -> &[Sample] {
    let index = |time| samples.partition_point(|sample| sample.at < time);
    samples.get(index(from)..index(to)).unwrap_or_default()
}

/// Whether from `begin` to `now` each of these groups has answered, and the last RPCs were all answered: those without
/// a session by these groups, the others by any.
pub(super) fn settled_in(
    groups: &[Group],
    members: &[Member],
    samples: &[Sample],
    begin: Duration,
    now: Duration,
) -> bool {
    let from = now.saturating_sub(SETTLED);
    let (all, last) = (between(samples, begin, now), between(samples, from, now));
    let is_settled = |sample: &Sample| match (sample.group(members), sample.user) {
        (Some(group), None) => groups.contains(&group),
        (answered, _) => answered.is_some(),
    };
    let has_answered = |group: &Group| {
        all.iter().any(|sample| sample.user.is_none() && sample.group(members) == Some(*group))
    };
    let some = last.iter().any(|sample| sample.user.is_none());
    from >= begin && some && last.iter().all(is_settled) && groups.iter().all(has_answered)
}

/// Running RPCs. Dropping this stops them.
pub(super) struct Load {
    channel: XdsChannel,
    samples: Samples,
    users: usize,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Load {
    pub(super) fn start(channel: XdsChannel, rate: u32) -> Self {
        let samples = Samples { start: Instant::now(), list: Arc::default() };
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(send(channel.clone(), rate, samples.clone(), stopped));
        Self { channel, samples, users: 0, stop, tasks }
    }

    /// Adds users who send RPCs from now on.
    pub(super) fn log_in(&mut self, count: usize) {
        for user in self.users..self.users + count {
            let (samples, stopped) = (self.samples.clone(), self.stop.subscribe());
            self.tasks.spawn(visit(self.channel.clone(), user, samples, stopped));
        }
        self.users += count;
    }

    /// The time since the load started.
    pub(super) fn now(&self) -> Duration {
        self.samples.start.elapsed()
    }

    /// Reads all samples so far, in order, and the current time. All others will be later.
    pub(super) fn read<R>(&self, look: impl FnOnce(&[Sample], Duration) -> R) -> R {
        let samples = self.samples.list.lock().unwrap_or_else(PoisonError::into_inner);
        look(&samples, self.now())
    }

    /// Sends no more RPCs, and waits for those in flight.
    pub(super) async fn stop(mut self) -> Vec<Sample> {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        self.read(|samples, _| samples.to_vec())
    }
}

/// The outcome of every RPC, in the order in which they ended.
#[derive(Clone)]
struct Samples {
    start: Instant,
    list: Arc<Mutex<Vec<Sample>>>,
}

impl Samples {
    fn push(&self, user: Option<usize>, outcome: Outcome) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        // The time is taken under the lock, so that samples are in order, and none is earlier than a read.
        list.push(Sample { at: self.start.elapsed(), user, outcome });
    }
}

async fn send(channel: XdsChannel, rate: u32, samples: Samples, mut stop: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.changed() => break,
        }
        let (channel, samples) = (channel.clone(), samples.clone());
        calls.spawn(async move { samples.push(None, call(channel, &mut None).await) });
        while calls.try_join_next().is_some() {}
    }
    while calls.join_next().await.is_some() {}
}

/// Acts like a browser: sends back the last cookie it received.
async fn visit(channel: XdsChannel, user: usize, samples: Samples, mut stop: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval_at(Instant::now() + USER_EVERY, USER_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut cookie = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.changed() => break,
        }
        let outcome = call(channel.clone(), &mut cookie).await;
        samples.push(Some(user), outcome);
    }
}

async fn call(channel: XdsChannel, cookie: &mut Option<String>) -> Outcome {
    let mut request = Request::new(EchoRequest::new("hello"));
    request.set_timeout(DEADLINE);
    if let Some(value) = cookie.as_deref().and_then(|cookie| MetadataValue::try_from(cookie).ok()) {
        request.metadata_mut().insert("cookie", value);
    }
    match EchoClient::new(channel).unary(request).await {
        Ok(response) => {
            let set = response.metadata().get("set-cookie").and_then(|set| set.to_str().ok());
            if let Some(value) = set.and_then(|set| set.split(';').next()) {
                *cookie = Some(value.to_owned());
            }
            Outcome::Answered(response.into_inner().backend)
        }
        Err(status) => Outcome::Failed(status.code(), status.message().to_owned()),
    }
}
