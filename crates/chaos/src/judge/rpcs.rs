//! The rules for RPCs.
//!
//! A success must come from a backend of the RPC's cluster: one that the control plane listed then, or listed before
//! and replaced by a configuration that the client had not accepted yet (plus the grace).
//!
//! A failure must be explained by a fault. The explanations are:
//! - It was sent to a backend that was killed, cut off or refusing, and failed with UNAVAILABLE. If the route has
//!   retries (unary RPCs of `plain`, `short` and `fresh`) and a healthy endpoint was available, every attempt needs
//!   such a fault.
//! - It was sent to a backend that was stopped, blocked or lossy for at least half of the deadline, and failed with
//!   DEADLINE_EXCEEDED.
//! - It failed with DEADLINE_EXCEEDED, and a backend of its cluster was stopped, blocked or lossy from before its start
//!   until the rest of the deadline was too short (one second, four for streams): a server that resumes may refuse
//!   requests that have waited for it (h2 does, after many cancelled requests), and the RPC was retried on a different
//!   one.
//! - It was sent to a backend that was stopped, blocked or lossy for so long that the connection may have been closed
//!   (20 seconds by the write timeout and TCP_USER_TIMEOUT; two seconds on `aggregate`, by its keepalive timeout), and
//!   failed with UNAVAILABLE.
//! - It was sent to a backend that was stopped, blocked or lossy, which closed the connection with ENHANCE_YOUR_CALM:
//!   h2 does so after more than 20 requests that were cancelled before it read them.
//! - It was sent to such a backend, and the status contains ETIMEDOUT, which only the kernel reports: its timer may
//!   have started with an earlier fault.
//! - It was not sent, and no endpoint of its cluster was healthy: each had a fault, was possibly still in backoff after
//!   one, or was not listed throughout.
//! - It was not sent, it belongs to `dns`, and a pass of pick_first over the addresses may not have come back to the
//!   healthy one: gRFC A61 tries an address that has failed again only after the pass, which lasts as long as the attempt
//!   to a stopped, blocked or lossy one (20 seconds), and reports a pass without success.
//! - It was not sent, the backend of its session was not healthy, and it waited for that one until DEADLINE_EXCEEDED
//!   (gRFC A55).
//! - It was not sent, its xDS client is new (`fresh`), and the control plane was unreachable, or had a resource that
//!   must be rejected and the status says so.
//! - It failed with DEADLINE_EXCEEDED, and the scheduling delay of this machine was a third of the deadline.
//!
//! Drains (GOAWAY) and delays explain nothing; rejected resources and faults of the control plane nothing else.

use super::Case;
use crate::clock::{Micros, SECOND, micros};
use crate::faults::{Fault, Target};
use crate::report::Report;
use crate::topology::{
    BACKENDS, Backends, Channel, DNS_BACKENDS, RETRIES, STREAM_DEADLINE, UNARY_DEADLINE, members,
};
use crate::wire::{Kind, Rpc};

const UNAVAILABLE: u8 = 14;
const DEADLINE_EXCEEDED: u8 = 4;

/// The time limit of a connection attempt.
const CONNECT_TIMEOUT: Micros = 20 * SECOND;

/// A listed, healthy endpoint gets at least one in this many RPCs, so that a run of this many without it does not occur
/// by chance (less than once in 10^12).
const STARVED: [(Channel, u32); 2] = [(Channel::Plain, 2_500), (Channel::Session, 400)];

pub(super) fn judge(case: &Case<'_>, report: &mut Report) {
    let mut by_end: Vec<&Rpc> = case.notes.rpcs.iter().collect();
    by_end.sort_by_key(|rpc| rpc.end);
    let mut starved = [[0u32; BACKENDS]; 2];
    let mut child = None;
    for rpc in by_end {
        let channel = Channel::ALL[usize::from(rpc.channel).min(Channel::ALL.len() - 1)];
        report.count(channel, rpc);
        let routed = check_backend(case, channel, rpc);
        if let Err(what) = routed {
            report.violations.push(case.violation("sent to a wrong backend", rpc.end, what));
        }
        if rpc.code != 0 {
            match explain(case, channel, rpc) {
                Ok(cause) => report.explained(rpc.code, cause),
                Err(why) => {
                    let what = describe(case, channel, rpc, why);
                    report.violations.push(case.violation("unexplained failure", rpc.end, what));
                }
            }
            continue;
        }
        if let Some(what) = leaves_session(case, rpc) {
            report.violations.push(case.violation("session broken", rpc.end, what));
        }
        for (counted, missed) in STARVED.into_iter().zip(&mut starved) {
            if counted.0 == channel && rpc.kind == Kind::Unary && rpc.pinned.is_none() {
                for backend in starving(case, channel, rpc, missed, counted.1) {
                    let what =
                        format!("{} of {} got no RPC", Target::Backend(backend).name(), channel.name());
                    report.violations.push(case.violation("endpoint not used", rpc.end, what));
                }
            }
        }
        stalls(case, channel, rpc, report);
        if channel == Channel::Aggregate {
            let now = rpc.backend.map(|backend| backend < 7);
            report.failovers += u64::from(child.is_some() && child != now);
            child = now;
        }
    }
}

/// Whether the backend that it was sent to belongs to its cluster.
fn check_backend(case: &Case<'_>, channel: Channel, rpc: &Rpc) -> Result<(), String> {
    let Some(port) = rpc.port else { return Ok(()) };
    let Some(backend) = case.backend_at(port) else { return Err(format!("sent to port {port}")) };
    if rpc.backend.is_some_and(|answered| usize::from(answered) != backend) {
        return Err(format!("b{backend} was picked, but {:?} answered", rpc.backend));
    }
    let grace = case.grace(rpc.start, rpc.end);
    let choices = case.choices(channel, rpc.start, rpc.end, grace);
    let allowed = choices.iter().fold(0, |set, listed| set | listed.maybe);
    if allowed & (1 << backend) == 0 {
        let names = members(allowed).map(|backend| format!("b{backend}")).collect::<Vec<_>>().join(", ");
        return Err(format!("{} was sent to b{backend}; its cluster had {names}", channel.name()));
    }
    Ok(())
}

/// The explanation of a failure, or the reason why there is none.
fn explain(case: &Case<'_>, channel: Channel, rpc: &Rpc) -> Result<&'static str, &'static str> {
    let deadline = micros(if rpc.kind == Kind::Unary { UNARY_DEADLINE } else { STREAM_DEADLINE });
    let grace = case.grace(rpc.start, rpc.end);
    let (from, to) = (rpc.start.saturating_sub(grace), rpc.end + grace);
    if !matches!(rpc.code, UNAVAILABLE | DEADLINE_EXCEEDED) {
        return Err("no fault causes this code");
    }
    if rpc.code == DEADLINE_EXCEEDED && case.delays.longest(rpc.start, rpc.end) >= deadline / 3 {
        return Ok("the machine was stalled");
    }
    let choices = case.choices(channel, from, to, grace);
    let healthy = |set: Backends| case.healthy(channel, set, from, to) != 0;
    let has_healthy = !choices.is_empty() && choices.iter().all(|listed| healthy(listed.surely));
    let Some(backend) = rpc.port.and_then(|port| case.backend_at(port)) else {
        if let Some(pinned) = rpc.pinned.filter(|_| rpc.code == DEADLINE_EXCEEDED) {
            let listed = choices.iter().all(|listed| listed.surely & (1 << pinned) != 0);
            if !listed || case.is_out(Channel::Session, usize::from(pinned), from, to) {
                return Ok("waited for the backend of its session");
            }
        }
        if channel == Channel::Fresh && case.is_plane_out(from, to) {
            return Ok("no configuration yet, and the control plane was unreachable");
        }
        let says_rejected =
            rpc.message.as_deref().is_some_and(|message| message.contains("rejected version"));
        if channel == Channel::Fresh && says_rejected && case.has_rejected(from, to) {
            return Ok("no configuration yet except an invalid one");
        }
        if channel == Channel::Dns && is_in_a_pass(case, from, to) {
            return Ok("a pass over the addresses had not come back to the healthy one");
        }
        return if has_healthy { Err("a healthy endpoint was available") } else { Ok("no healthy endpoint") };
    };
    let target = Target::Backend(backend);
    if rpc.code == DEADLINE_EXCEEDED {
        let stalled = |fault: &Fault| {
            let start = fault.start.saturating_sub(grace).max(rpc.start);
            fault.end.saturating_add(grace).min(rpc.end).saturating_sub(start)
        };
        let stalls = || case.faults_in(from, to).filter(|fault| fault.kind.stalls());
        if stalls().filter(|fault| fault.target == target).map(stalled).sum::<Micros>() >= deadline / 2 {
            return Ok("sent to a backend that was stopped, blocked or lossy");
        }
        // The recorded backend is the last one. A server that resumes may refuse requests that have waited for it.
        let possible = choices.iter().fold(0, |set, listed| set | listed.maybe);
        let first = |fault: &&Fault| {
            matches!(fault.target, Target::Backend(backend) if possible & (1 << backend) != 0)
                && fault.start <= rpc.start
        };
        let rest = if rpc.kind == Kind::Unary { SECOND } else { 4 * SECOND };
        return match stalls().filter(first).any(|fault| stalled(fault) + rest >= deadline) {
            true => Ok("retried too late after a stopped or blocked backend had refused it"),
            false => Err("its backend was healthy for most of the deadline"),
        };
    }
    let of_target: Vec<_> = case.faults_in(from, to).filter(|fault| fault.target == target).collect();
    if of_target
        .iter()
        .any(|fault| fault.kind.stalls() && to.saturating_sub(fault.start) >= channel.gives_up())
    {
        return Ok("sent to a backend that was stopped or blocked until its connection was closed");
    }
    let says_calm = rpc.message.as_deref().is_some_and(|message| message.contains("ENHANCE_YOUR_CALM"));
    if says_calm && of_target.iter().any(|fault| fault.kind.stalls()) {
        return Ok(
            "sent to a backend that resumed and closed the connection for too many cancelled requests",
        );
    }
    let says_timeout = rpc.message.as_deref().is_some_and(|message| message.contains("os error 110"));
    if says_timeout && of_target.iter().any(|fault| fault.kind.stalls()) {
        return Ok("sent to a backend that was blocked until the kernel closed its connection");
    }
    if !of_target.iter().any(|fault| fault.kind.breaks()) {
        return Err("its backend was healthy");
    }
    let retried = rpc.kind == Kind::Unary && channel.is_routed_as_plain();
    if retried && has_healthy {
        let reach = channel.reach();
        let hits = |target| matches!(target, Target::Backend(backend) if reach & (1 << backend) != 0);
        let breaks =
            case.faults_in(from, to).filter(|fault| hits(fault.target) && fault.kind.breaks()).count();
        if breaks <= RETRIES as usize {
            return Err("it could have been retried on a healthy endpoint");
        }
        return Ok("every attempt was sent to a backend that was killed or cut off");
    }
    Ok("sent to a backend that was killed or cut off")
}

/// Whether pick_first may have been in a pass over the addresses of the DNS cluster that had not come back to the
/// healthy ones: every address had an outage since the pass began at the earliest, and an attempt to one of them has
/// taken long.
fn is_in_a_pass(case: &Case<'_>, from: Micros, to: Micros) -> bool {
    let from = from.saturating_sub(CONNECT_TIMEOUT);
    let of_dns = |target| matches!(target, Target::Backend(backend) if DNS_BACKENDS & (1 << backend) != 0);
    let stalled = case.faults_in(from, to).any(|fault| of_dns(fault.target) && fault.kind.stalls());
    stalled && case.healthy(Channel::Dns, DNS_BACKENDS, from, to) == 0
}

/// An RPC of a session must go to its backend while that one is listed and healthy.
fn leaves_session(case: &Case<'_>, rpc: &Rpc) -> Option<String> {
    let (pinned, answered) = (rpc.pinned?, rpc.backend?);
    let grace = case.grace(rpc.start, rpc.end);
    let (from, to) = (rpc.start.saturating_sub(SECOND + grace), rpc.end + grace);
    let listed =
        case.choices(Channel::Session, from, to, grace).iter().all(|l| l.surely & (1 << pinned) != 0);
    let is_wrong =
        pinned != answered && listed && !case.is_out(Channel::Session, usize::from(pinned), from, to);
    is_wrong.then(|| format!("its session is bound to b{pinned}, but b{answered} answered"))
}

/// The backends that got none of too many consecutive RPCs although they were listed and healthy.
fn starving(
    case: &Case<'_>,
    channel: Channel,
    rpc: &Rpc,
    missed: &mut [u32; BACKENDS],
    limit: u32,
) -> Vec<usize> {
    let grace = case.grace(rpc.start, rpc.end);
    let (from, to) = (rpc.start.saturating_sub(SECOND + grace), rpc.end);
    let choices = case.choices(channel, from, to, grace);
    let surely = match &choices[..] {
        // Each cluster has a share.
        choices if choices.iter().all(|listed| listed.surely != 0) => {
            choices.iter().fold(0, |set, listed| set | listed.surely)
        }
        _ => 0,
    };
    let healthy = case.healthy(channel, surely, from, to);
    let mut starving = Vec::new();
    for (backend, missed) in missed.iter_mut().enumerate() {
        let counts = healthy & (1 << backend) != 0 && rpc.backend.map(usize::from) != Some(backend);
        *missed = if counts { *missed + 1 } else { 0 };
        if *missed == limit {
            starving.push(backend);
        }
    }
    starving
}

/// Records the duration of a unary RPC that a healthy backend answered without any other delay.
fn stalls(case: &Case<'_>, channel: Channel, rpc: &Rpc, report: &mut Report) {
    let took = rpc.end - rpc.start;
    if rpc.kind != Kind::Unary || rpc.pinned.is_some() || took <= report.longest_success {
        return;
    }
    let Some(backend) = rpc.backend.map(usize::from) else { return };
    let grace = case.grace(rpc.start, rpc.end);
    let (from, to) = (rpc.start.saturating_sub(grace), rpc.end + grace);
    let choices = case.choices(channel, from, to, grace);
    let served = choices.iter().all(|listed| case.healthy(channel, listed.surely, from, to) != 0);
    let hurt = case.faults_in(from, to).any(|fault| fault.target == Target::Backend(backend));
    if served && !hurt && !case.is_out(channel, backend, from, to) {
        report.longest_success = took;
    }
}

fn describe(case: &Case<'_>, channel: Channel, rpc: &Rpc, why: &str) -> String {
    let to = rpc.port.map_or_else(
        || "not sent".to_owned(),
        |port| {
            case.backend_at(port).map_or_else(|| format!("sent to port {port}"), |b| format!("sent to b{b}"))
        },
    );
    let pinned = rpc.pinned.map_or_else(String::new, |backend| format!(", session of b{backend}"));
    format!(
        "{:?} of {}, {to}{pinned}, code {} after {:.3} s: {why}; {}",
        rpc.kind,
        channel.name(),
        rpc.code,
        (rpc.end - rpc.start) as f64 / SECOND as f64,
        rpc.message.as_deref().unwrap_or_default()
    )
}
