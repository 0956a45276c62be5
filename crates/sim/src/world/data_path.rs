//! The calls of a world.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{CallAttributes, ClusterId, Code, HostWait, OverrideHost, PickResult};
use proxyless_mesh::cluster_claim::RpcClaim;
use proxyless_sans_io::Rng;

use super::World;
use crate::clients::calls::{self, Call, End, Picked, Running};
use crate::clients::endpoints::Phase;
use crate::clients::sessions;
use crate::laws::faults::Injection;
use crate::laws::in_use;
use crate::laws::invariants::Violation;
use crate::laws::ledger::{self, Counted};
use crate::script::{CallSpec, Mood};
use crate::world::queue::Event;

/// The deadline of calls.
const DEADLINE: Duration = Duration::from_secs(60);
/// The deadline in a gentle world: shorter than a failover.
const GENTLE_DEADLINE: Duration = Duration::from_secs(8);
/// One in this many calls is found at once not to have been sent.
const UNSENT: u64 = 24;

/// The outcome of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It reached this backend.
    Reached(SocketAddr),
    /// It waits.
    Waits,
    /// It failed.
    Failed(String),
    /// It was dropped.
    Dropped(String),
}

/// An RPC to be routed and picked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request<'a> {
    pub(crate) path: &'a str,
    /// The cluster, if it was chosen before.
    pub(crate) cluster: Option<RpcClaim>,
    /// The cookie of its session, if it has one; empty at first.
    pub(crate) cookie: Option<Cookie<'a>>,
    /// State of the previous pick for the same RPC.
    pub(crate) waiting: Option<HostWait>,
}

/// The source of an RPC's cookie.
#[derive(Clone, Debug)]
pub(crate) enum Cookie<'a> {
    /// The current cookie of this session.
    Session(u8),
    /// An earlier cookie of this session.
    Kept(u8, &'a Arc<[SocketAddr]>),
    /// A cookie with these addresses.
    Of(&'a Arc<[SocketAddr]>),
}

/// Whether stream limits apply to an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streams {
    Limited,
    /// It ends before it could wait for a stream.
    Unlimited,
}

/// The result of a pick for an RPC that ends as soon as it begins.
pub(crate) struct Probe {
    /// The cluster that it was routed to.
    pub(crate) cluster: Option<RpcClaim>,
    /// State for its next pick, if it waits.
    pub(crate) waiting: Option<HostWait>,
    pub(crate) outcome: Outcome,
}

/// The result of routing and picking.
struct Attempt {
    cluster: Option<RpcClaim>,
    /// The RPC's cookie, if it belongs to a session.
    cookie: Option<Arc<[SocketAddr]>>,
    waiting: Option<HostWait>,
    picked: Picked,
}

impl Attempt {
    /// An attempt without a cookie.
    fn without_cookie(cluster: Option<RpcClaim>, picked: Picked) -> Self {
        Self { cluster, cookie: None, waiting: None, picked }
    }
}

impl World {
    /// A call begins.
    pub(super) fn begin_call(&mut self, spec: CallSpec) -> Result<(), Violation> {
        let Some(epoch) = self.channel(spec.channel).map(|channel| channel.epoch) else { return Ok(()) };
        let id = self.calls.begin(spec, epoch, self.now);
        self.set_call_timer(id);
        self.try_call(id)
    }

    /// Routes a new call, and begins its fault if it has one (A33-01: before anything is sent). Returns whether it waits
    /// for the end of the fault.
    fn inject(&mut self, id: u64) -> Result<bool, Violation> {
        let Some(call) = self.calls.get(id).filter(|call| call.cluster.is_none()) else { return Ok(false) };
        let channel = self.channels.iter().flatten().find(|channel| channel.epoch == call.epoch);
        let Some(plane) = channel.and_then(|channel| channel.plane.as_ref()) else { return Ok(false) };
        let path = call.spec.path.clone();
        let Ok((cluster, fault)) = calls::route_with_fault(plane, &path, &mut self.rng) else {
            return Ok(false);
        };
        let begun = fault.and_then(|fault| Injection::begin(fault, &self.active_faults, self.now));
        let Some(call) = self.calls.get_mut(id) else { return Ok(false) };
        call.cluster = Some(cluster);
        let Some(injection) = begun else { return Ok(false) };
        self.log.line(self.now, format_args!("call {id}: {:?}", injection.fault));
        self.queue.push(injection.until, Event::FaultEnds(id));
        injection.check_limit(self.calls.injections() + 1)?;
        self.calls.faults += 1;
        if let Some(call) = self.calls.get_mut(id) {
            call.injection = Some(injection);
        }
        Ok(true)
    }

    /// The delay of a call ends: it is aborted, or goes on.
    pub(super) fn fault_ends(&mut self, id: u64) -> Result<(), Violation> {
        let deadline = self.deadline();
        let Some(call) = self.calls.get_mut(id) else { return Ok(()) };
        let Some(injection) = call.injection.take() else { return Ok(()) };
        let (begun, sent) = (call.waits_since, call.sent);
        (call.waits_since, call.delayed) = (self.now, self.now.since(begun));
        // A33-01: the delay counts into the deadline. After a suspension both are over, in the order of their times.
        let in_time = injection.until <= begun + deadline;
        Violation::unless(in_time, "an injected delay ends with the deadline", || {
            format!("call {id}: {:?}", injection.fault)
        })?;
        let Some(code) = injection.fault.abort else { return self.try_call(id) };
        // A33-02.
        Violation::unless(sent == 0, "a call is not both aborted and sent", || format!("call {id}"))?;
        self.log.line(self.now, format_args!("call {id}: aborted with {code:?}"));
        self.calls.end(id, End::Badly("aborted by a fault filter".into()));
        Ok(())
    }

    /// The deadline of calls in this world.
    fn deadline(&self) -> Duration {
        if self.settings.mood == Mood::Gentle { GENTLE_DEADLINE } else { DEADLINE }
    }

    fn set_call_timer(&mut self, id: u64) {
        self.queue.push(self.now + self.deadline(), Event::CallTimesOut(id));
    }

    /// The deadline of a call; only calls that still wait have one.
    pub(super) fn time_out(&mut self, id: u64) -> Result<(), Violation> {
        let (now, deadline) = (self.now, self.deadline());
        let Some(call) = self.calls.get(id).filter(|call| call.running.is_none()) else { return Ok(()) };
        // A33-01: an injected delay counts.
        if call.waits_since + deadline > now + call.delayed {
            return Ok(());
        }
        let epoch = call.epoch;
        let channel = self.channels.iter().flatten().find(|channel| channel.epoch == epoch);
        // In a gentle world the control plane may be unreachable, which is not the fault of an update.
        if let Some(channel) = channel.filter(|_| self.settings.mood == Mood::Gentle) {
            let routed_since = if channel.has_routes() { channel.routed_since } else { now };
            if routed_since + deadline > now {
                self.queue.push(routed_since + deadline, Event::CallTimesOut(id));
                return Ok(());
            }
        }
        self.fail_call(id, "deadline exceeded".into())
    }

    fn fail_call(&mut self, id: u64, why: String) -> Result<(), Violation> {
        // An unreachable control plane is a valid reason while nothing was ever known about the cluster.
        let is_new = self.calls.get(id).is_some_and(|call| {
            let channel = self.channels().find(|channel| channel.epoch == call.epoch);
            let served = channel.map(|channel| &channel.served);
            served.is_none_or(|served| match &call.cluster {
                Some(cluster) => !served.contains(cluster.name()),
                None => served.is_empty(),
            })
        });
        let gentle = self.settings.mood == Mood::Gentle;
        Violation::unless(!gentle || is_new, "updates alone do not fail calls", || {
            let cluster = self.calls.get(id).and_then(|call| call.cluster.as_ref());
            format!("{cluster:?}: {why}")
        })?;
        self.calls.end(id, End::Badly(why));
        Ok(())
    }

    /// A new snapshot is published: waiting calls pick again, some of them late.
    pub(super) fn pick_again(&mut self, epoch: u64) -> Result<(), Violation> {
        let mut waiting: Vec<u64> = self.calls.waiting_for_news(epoch).map(|(id, _)| id).collect();
        self.rng.shuffle(&mut waiting);
        for id in waiting {
            if self.rng.below(2) == 0 {
                self.try_call(id)?;
            } else if let Some(call) = self.calls.get_mut(id) {
                // Its task may run much later.
                call.woken = true;
                let at = self.now + self.local_delay();
                self.queue.push(at, Event::CallWakes(id));
            }
        }
        Ok(())
    }

    /// A call sees the snapshot that it was woken for, or a newer one.
    pub(super) fn call_wakes(&mut self, id: u64) -> Result<(), Violation> {
        let waits =
            |call: &&mut Call| call.running.is_none() && call.held.is_none() && call.injection.is_none();
        match self.calls.get_mut(id).filter(waits) {
            Some(call) => {
                call.woken = false;
                self.try_call(id)
            }
            None => Ok(()),
        }
    }

    fn try_call(&mut self, id: u64) -> Result<(), Violation> {
        if self.inject(id)? {
            return Ok(());
        }
        let Some(call) = self.calls.get_mut(id) else { return Ok(()) };
        let (epoch, spec, had, waiting) =
            (call.epoch, call.spec.clone(), call.cookie.clone(), call.waiting.take());
        let cookie = spec.session.map(|session| match &had {
            Some(had) => Cookie::Kept(session, had),
            None => Cookie::Session(session),
        });
        let request = Request { path: &spec.path, cluster: call.cluster.clone(), cookie, waiting };
        let Attempt { cluster, cookie, waiting, picked } = self.pick(epoch, request, Streams::Limited)?;
        let name = cluster.as_ref().map_or("no cluster", |cluster| cluster.name());
        self.log.line(self.now, format_args!("call {id}: {name}: {}", picked.describe()));
        let unsent = matches!(picked, Picked::Started { .. }) && self.rng.below(UNSENT) == 0;
        let Some(call) = self.calls.get_mut(id) else { return Ok(()) };
        call.cluster = cluster;
        call.cookie = cookie.or(had);
        call.waiting = waiting;
        match picked {
            Picked::Waits => {
                call.out_of_luck = false;
                return sessions::check_wait(self, id);
            }
            Picked::Held { pick, subchannel, address, .. } => {
                call.out_of_luck = false;
                let loads = self.by_epoch(epoch).map(|channel| channel.loads.clone()).unwrap_or_default();
                self.calls.hold(id, (pick, subchannel, address), loads);
            }
            Picked::Fails(_) if spec.wait_for_ready => call.out_of_luck = true,
            Picked::Fails(why) | Picked::Dropped(why) => return self.fail_call(id, why),
            Picked::Started { flight, attempt, address } => {
                call.running = Some(Running { flight, attempt, address });
                call.sent += 1;
                if unsent && call.sent < 3 {
                    return self.send_again(id);
                }
                self.runs(id);
            }
        }
        Ok(())
    }

    /// A call was sent: it takes its time if its backend is alive.
    pub(super) fn runs(&mut self, id: u64) {
        let Some(call) = self.calls.get(id) else { return };
        let Some(Running { address, attempt, .. }) = &call.running else { return };
        let (epoch, run, takes, address, attempt) =
            (call.epoch, call.sent, call.spec.takes, *address, *attempt);
        if self.backends.accepts(address) {
            self.queue.push(self.now + takes, Event::CallEnds { id, run });
        } else {
            let why = "the backend died and the channel has not noticed yet";
            self.calls.end(id, End::Badly(why.into()));
            self.stream_ends(epoch, attempt);
        }
    }

    /// A call was not sent after all: a transparent retry.
    pub(super) fn send_again(&mut self, id: u64) -> Result<(), Violation> {
        let was = self.calls.get(id).and_then(|call| Some((call.epoch, call.running.as_ref()?)));
        let was = was.map(|(epoch, running)| (epoch, running.attempt));
        self.calls.withdraw(id, self.now);
        if let Some((epoch, attempt)) = was {
            self.stream_ends(epoch, attempt);
        }
        self.set_call_timer(id);
        self.try_call(id)
    }

    /// A call ends, unless it was sent again meanwhile.
    pub(super) fn call_ends(&mut self, id: u64, run: u32) {
        let Some(call) = self.calls.get(id) else { return };
        let Some(running) = call.running.as_ref().filter(|_| call.sent == run) else { return };
        let end = match call.spec.gives_up {
            true => End::GivenUp,
            false if self.backends.fails(running.address, &mut self.rng) => End::Badly("INTERNAL".into()),
            false => End::Well,
        };
        let (epoch, attempt) = (call.epoch, running.attempt);
        self.calls.end(id, end);
        self.stream_ends(epoch, attempt);
    }

    /// Sends an RPC that ends as soon as it begins; returns the cluster that it was routed to.
    ///
    /// # Errors
    /// If it went to a wrong place.
    pub fn probe(&mut self, channel: usize, path: &str) -> Result<(Option<RpcClaim>, Outcome), Violation> {
        let Probe { cluster, outcome, .. } =
            self.probe_with(channel, Request { path, ..Request::default() })?;
        Ok((cluster, outcome))
    }

    pub(crate) fn probe_with(&mut self, channel: usize, request: Request<'_>) -> Result<Probe, Violation> {
        let Some(epoch) = self.channel(channel).map(|channel| channel.epoch) else {
            let outcome = Outcome::Failed("the channel is closed".into());
            return Ok(Probe { cluster: None, waiting: None, outcome });
        };
        let Attempt { cluster, waiting, picked, .. } = self.pick(epoch, request, Streams::Unlimited)?;
        let outcome = match picked {
            Picked::Waits | Picked::Held { .. } => Outcome::Waits,
            Picked::Fails(why) => Outcome::Failed(why),
            Picked::Dropped(why) => Outcome::Dropped(why),
            Picked::Started { flight, address, .. } => {
                let fails = self.backends.fails(address, &mut self.rng);
                flight.finish(if fails { Code::Internal } else { Code::Ok }, &mut self.calls.ledger);
                Outcome::Reached(address)
            }
        };
        self.report_demand();
        self.wake_channels();
        Ok(Probe { cluster, waiting, outcome })
    }

    /// Routes and picks, and checks the result.
    fn pick(&mut self, epoch: u64, request: Request<'_>, streams: Streams) -> Result<Attempt, Violation> {
        self.use_channel(epoch);
        let Some(channel) = self.channels.iter().flatten().find(|channel| channel.epoch == epoch) else {
            return Ok(Attempt::without_cookie(request.cluster, Picked::Waits));
        };
        let Some(plane) = &channel.plane else {
            return Ok(Attempt::without_cookie(request.cluster, Picked::Waits));
        };
        let cluster = match calls::route(plane, request.cluster, request.path, &mut self.rng) {
            Ok(cluster) => cluster,
            Err(why) => return Ok(Attempt::without_cookie(None, Picked::Fails(why))),
        };
        let cookie = request.cookie.as_ref().map(|cookie| match cookie {
            Cookie::Session(session) => self.sessions.cookie(channel.index, *session, cluster.name()),
            Cookie::Kept(_, addresses) | Cookie::Of(addresses) => Arc::clone(addresses),
        });
        let override_host = cookie.clone().map(|cookie_addresses| OverrideHost {
            waiting: request.waiting,
            ..OverrideHost::new(cookie_addresses, self.now)
        });
        let attributes = CallAttributes {
            cluster: cluster.id(),
            hash: self.rng.next_u64(),
            override_host,
            ..CallAttributes::default()
        };
        let before = ledger::views(&channel.loads);
        let (result, attributes) = calls::ask(plane, request.path, attributes, &mut self.rng);
        let mut picked = calls::start(result, |attempt, address| {
            streams == Streams::Unlimited || self.stream_limits.has_room(&self.calls, epoch, attempt, address)
        });
        let counted = ledger::changes(&channel.loads, &before);
        if let Some(cookie) = &cookie {
            let (name, picked) = (cluster.name(), picked.describe());
            self.log.line(self.now, format_args!("session of {name} with {cookie:?}: {picked}"));
        }
        in_use::check_counted(channel, cluster.name(), &picked, &counted)?;
        in_use::check_circuit(channel, &self.circuits, self.calls.running(), cluster.name(), &picked)?;
        in_use::check_target(channel, cluster.name(), cookie.is_some(), &picked)?;
        if let Some(cookie) = &cookie {
            sessions::check_pick(channel, cluster.name(), cookie, &picked)?;
        }
        let (actual, waiting) =
            attributes.override_host.map_or((None, None), |session| (session.actual, session.waiting));
        if let (
            Some(Cookie::Session(session) | Cookie::Kept(session, _)),
            Some(actual),
            Picked::Started { .. },
        ) = (request.cookie, actual, &picked)
        {
            self.sessions.set(channel.index, session, cluster.name(), &actual);
        }
        if let Picked::Started { attempt, address, .. } | Picked::Held { attempt, address, .. } = &picked {
            let found = channel.connections.get(*attempt);
            let good = found.is_some_and(|found| found.phase == Phase::Ready && found.address == *address);
            Violation::unless(good, "picks return live connections", || {
                format!("{address}, attempt {attempt}: {found:?}")
            })?;
        }
        if let (Picked::Started { attempt, .. }, Some(channel)) = (&picked, self.by_epoch(epoch)) {
            channel.connections.used(*attempt);
        }
        for counted in counted {
            match (counted, &mut picked) {
                (Counted::Issued(place), Picked::Started { flight, .. }) => {
                    flight.count_in(place, &mut self.calls.ledger);
                }
                (Counted::Dropped(account, category, count), _) => {
                    self.calls.ledger.dropped(account, category, count);
                }
                // Excluded by the check above.
                (Counted::Issued(_), _) => {}
            }
        }
        Ok(Attempt { cluster: Some(cluster), cookie, waiting, picked })
    }

    /// Calls a channel's picker `times` times without sending anything; returns the results.
    pub(crate) fn peek(&mut self, epoch: u64, cluster: ClusterId, times: usize) -> Vec<PickResult> {
        let Some(channel) = self.channels.iter().flatten().find(|channel| channel.epoch == epoch) else {
            return Vec::new();
        };
        let Some(plane) = &channel.plane else { return Vec::new() };
        let before = ledger::views(&channel.loads);
        // Draws its own random numbers: observing must not change the run.
        let mut rng = Rng::new(0);
        let ask = |_| {
            let attributes = CallAttributes { cluster, hash: rng.next_u64(), ..CallAttributes::default() };
            calls::ask(plane, "/", attributes, &mut rng).0
        };
        let results = (0..times).map(ask).collect();
        // Drops are counted even if nothing is sent.
        for counted in ledger::changes(&channel.loads, &before) {
            if let Counted::Dropped(account, category, count) = counted {
                self.calls.ledger.dropped(account, category, count);
            }
        }
        results
    }

    /// A31, A74: the picker of a snapshot has every cluster that its routes name.
    pub(super) fn check_snapshot(&mut self, epoch: u64) -> Result<(), Violation> {
        let plane = self.by_epoch(epoch).and_then(|channel| channel.plane.clone());
        let Some(Ok(routes)) = plane.map(|plane| plane.routes) else { return Ok(()) };
        for cluster in routes.clusters() {
            for result in self.peek(epoch, cluster.id(), 1) {
                let PickResult::Fail(error) = result else { continue };
                let known = !error.message.contains("no longer configured")
                    && !error.message.contains("the configuration has no cluster");
                Violation::unless(known, "a snapshot has a picker for every route", || {
                    cluster.name().to_string()
                })?;
            }
        }
        Ok(())
    }
}
