//! A misbehaviour of a backend, and the rules that hold for all of them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use proxyless::{Gates, XdsChannel, XdsChannelBuilder};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tonic::{Code, Status};

use crate::common::raw::END_STREAM;
use crate::common::{PATIENCE, ask_within, builder, mesh};
use crate::server::{Behaviour, Hostile};

/// The deadline of RPCs that only the deadline ends.
const SHORT: Duration = Duration::from_secs(4);
/// How long after its deadline an RPC may end on a busy machine.
const GRACE: Duration = Duration::from_secs(5);
/// Concurrent RPCs.
const RPCS: usize = 4;
const RPCS_BESIDE: usize = 8;

/// The origin of an error text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    /// The channel: it names the address of the backend.
    Channel,
    /// The server's own status, or tonic's error for its messages: passed on unchanged.
    Other,
}

pub(crate) struct Case {
    name: String,
    behaviour: Box<dyn Fn() -> Behaviour + Send + Sync>,
    code: Code,
    cause: &'static str,
    voice: Voice,
    copies: usize,
    others: Vec<Code>,
    connect_timeout: Duration,
}

impl Case {
    /// RPCs to a backend that behaves like this end with `code` and a message that contains `cause`.
    pub(crate) fn new(
        name: impl Into<String>,
        code: Code,
        cause: &'static str,
        behaviour: impl Fn() -> Behaviour + Send + Sync + 'static,
    ) -> Self {
        let (name, behaviour) = (name.into(), Box::new(behaviour));
        let (voice, connect_timeout) = (Voice::Channel, PATIENCE);
        Self { name, behaviour, code, cause, voice, copies: 1, others: Vec::new(), connect_timeout }
    }

    /// A backend that answers each request with these frames.
    pub(crate) fn reply(
        name: impl Into<String>,
        code: Code,
        cause: &'static str,
        frames: impl Fn(u32) -> Vec<u8> + Send + Sync + Clone + 'static,
    ) -> Self {
        Self::new(name, code, cause, move || Behaviour::Reply(Box::new(frames.clone())))
    }

    /// The error text is not the channel's.
    pub(crate) fn in_other_words(mut self) -> Self {
        self.voice = Voice::Other;
        self
    }

    /// The backend says that it did not process the request: it may get this many copies.
    pub(crate) fn copies(mut self, most: usize) -> Self {
        self.copies = most;
        self
    }

    /// RPCs may also end like this, if the connection is in a different state.
    pub(crate) fn or(mut self, code: Code) -> Self {
        self.others.push(code);
        self
    }

    /// The client has a short timeout for SETTINGS.
    pub(crate) fn impatient(mut self) -> Self {
        self.connect_timeout = Duration::from_millis(500);
        self
    }

    /// Runs the case. Returns the violated rules.
    pub(crate) async fn play(self) -> Vec<String> {
        let (alone, beside) = tokio::join!(self.alone(), self.beside());
        let alone = alone.into_iter().map(|found| format!("{} alone: {found}", self.name));
        let beside = beside.into_iter().map(|found| format!("{} beside a healthy one: {found}", self.name));
        alone.chain(beside).collect()
    }

    async fn alone(&self) -> Vec<String> {
        let begin = Instant::now();
        let (mut found, behaviour) = (Vec::new(), (self.behaviour)());
        let connects = behaviour.sends_settings();
        let hostile = start(behaviour).await;
        let plane = plane_of(&[hostile.address()]).await;
        let channel = self.channel(&plane);
        if connects {
            // So that connecting does not use up deadlines. It may be lost again at once.
            drop(channel.ready_within(SHORT).await);
        }
        for result in ask_at_once(&channel, RPCS, self.deadline()).await {
            found.extend(self.judge(&result, hostile.address()));
        }
        found.extend(self.count(&hostile, RPCS, begin.elapsed()));
        hostile.behave();
        found.extend(recovers(&channel).await.err());
        drop(channel);
        found.extend(hostile.left_alone().await.err());
        found
    }

    /// In the same locality as a healthy backend.
    async fn beside(&self) -> Vec<String> {
        let begin = Instant::now();
        let (mut found, hostile) = (Vec::new(), start((self.behaviour)()).await);
        let healthy = Backend::start("healthy").await.expect("a backend");
        let plane = plane_of(&[hostile.address(), healthy.address()]).await;
        let channel = self.channel(&plane);
        found.extend(reaches(&channel, |name| name == "healthy").await.err());
        let warmed_up = hostile.requests();
        // Refused RPCs reach the healthy one in the end, after some pauses.
        let deadline = if self.copies > 1 { 2 * SHORT } else { self.deadline() };
        let results = ask_at_once(&channel, RPCS_BESIDE, deadline).await;
        let healthy_answers = results.iter().filter(|result| matches!(result, Ok(name) if name == "healthy"));
        if healthy_answers.count() < RPCS_BESIDE / 4 {
            found.push(format!("few RPCs reach the healthy backend: {results:?}"));
        }
        for result in results.iter().filter(|result| !matches!(result, Ok(name) if name == "healthy")) {
            found.extend(self.judge(result, hostile.address()));
        }
        found.extend(self.count(&hostile, RPCS_BESIDE + warmed_up, begin.elapsed()));
        drop(channel);
        found.extend(hostile.left_alone().await.err());
        found.extend(healthy.wait_connections(0).await.err().map(|error| error.to_string()));
        found
    }

    fn channel(&self, plane: &ControlPlane) -> XdsChannel {
        options(plane).connect_timeout(self.connect_timeout).build().expect("a channel")
    }

    /// A busy machine must not reach the deadline where it is not expected to end RPCs.
    fn deadline(&self) -> Duration {
        let ends = self.code == Code::DeadlineExceeded || self.others.contains(&Code::DeadlineExceeded);
        if ends { SHORT } else { PATIENCE }
    }

    fn judge(&self, result: &Result<String, Status>, address: SocketAddr) -> Option<String> {
        let (code, message) = match result {
            Ok(_) => (Code::Ok, ""),
            Err(status) => (status.code(), status.message()),
        };
        if code != self.code && !self.others.contains(&code) {
            return Some(format!("{:?} expected, not {code:?} {message:?}", self.code));
        }
        let named = self.voice == Voice::Other || message.contains(&address.to_string());
        let explained = code != self.code || message.contains(self.cause);
        (code != Code::Ok && !(named && explained))
            .then(|| format!("the message must have {address} and {:?}: {message:?}", self.cause))
    }

    /// Limits the connections and the copies of RPCs.
    fn count(&self, hostile: &Hostile, rpcs: usize, elapsed: Duration) -> Vec<String> {
        let mut found = Vec::new();
        let requests = hostile.requests();
        if requests > rpcs * self.copies {
            found.push(format!("{requests} copies of {rpcs} RPCs"));
        }
        // One at once, then one per backoff, which is a second at first; and one more per second that a connection
        // lives, or per response: a connection on which an RPC succeeded may be replaced at once.
        let answers = self.code == Code::Ok || self.others.contains(&Code::Ok);
        let most = 3
            + 2 * usize::try_from(elapsed.as_secs()).expect("a short time")
            + if answers { rpcs } else { 0 };
        if hostile.accepted() > most {
            found.push(format!("{} connections in {elapsed:?}", hostile.accepted()));
        }
        found
    }
}

pub(crate) async fn start(behaviour: Behaviour) -> Hostile {
    Hostile::start(behaviour).await.expect("a port")
}

/// A control plane that wants load reports, ORCA metrics included.
pub(crate) async fn plane_of(addresses: &[SocketAddr]) -> ControlPlane {
    let plane = mesh(&[]).await;
    plane.set_all([
        eds_cluster("cluster").report_load().into(),
        priorities("cluster", [addresses.to_vec()]).into(),
    ]);
    plane
}

/// Closes sockets that accept nothing early.
pub(crate) fn options(plane: &ControlPlane) -> XdsChannelBuilder {
    let mut gates = Gates::default();
    gates.orca_lrs_propagation = true;
    builder(plane).gates(gates).write_timeout(Duration::from_secs(2))
}

/// An RPC that must end soon after its deadline.
pub(crate) async fn ask_in_time(channel: &XdsChannel, deadline: Duration) -> Result<String, Status> {
    let ended = tokio::time::timeout(deadline + GRACE, ask_within(channel, deadline)).await;
    ended.unwrap_or_else(|_| Err(Status::unknown("the RPC hangs beyond its deadline")))
}

async fn ask_at_once(channel: &XdsChannel, count: usize, deadline: Duration) -> Vec<Result<String, Status>> {
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..count {
        let channel = channel.clone();
        calls.spawn(async move { ask_in_time(&channel, deadline).await });
    }
    let mut results = Vec::new();
    while let Some(ended) = calls.join_next().await {
        results.push(ended.unwrap_or_else(|error| Err(Status::unknown(error.to_string()))));
    }
    results
}

/// Sends RPCs until one succeeds.
async fn recovers(channel: &XdsChannel) -> Result<(), String> {
    reaches(channel, |_| true).await
}

/// Sends RPCs until a matching backend answers one.
async fn reaches(channel: &XdsChannel, such: impl Fn(&str) -> bool) -> Result<(), String> {
    let mut last = None;
    let reached = async {
        loop {
            match ask_in_time(channel, SHORT).await {
                Ok(name) if such(&name) => return,
                other => last = Some(other),
            }
            // An RPC that fails at once is not repeated at once, which would only burn time.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(2 * PATIENCE, reached).await;
    in_time.map_err(|_| format!("RPCs do not succeed: {last:?}"))
}

/// Runs cases, some at once, and fails if any found a violation.
pub(crate) async fn play(cases: Vec<Case>) {
    const AT_ONCE: usize = 14;
    let only = std::env::var("HOSTILE_ONLY").ok();
    let turns = std::sync::Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    let mut running = tokio::task::JoinSet::new();
    let mut played = 0;
    for case in cases.into_iter().filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only))) {
        let turns = std::sync::Arc::clone(&turns);
        played += 1;
        running.spawn(async move {
            let _turn = turns.acquire_owned().await.expect("an open semaphore");
            let begin = Instant::now();
            let name = case.name.clone();
            let found = case.play().await;
            tracing::info!("{name}: {:?}", begin.elapsed());
            found
        });
    }
    let mut found = Vec::new();
    while let Some(ended) = running.join_next().await {
        found.extend(ended.unwrap_or_else(|error| vec![error.to_string()]));
    }
    assert!(played > 0 || only.is_some(), "nothing was played");
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

/// The flags of trailers.
pub(crate) const LAST: u8 = END_STREAM;
