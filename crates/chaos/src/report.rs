//! The result of a run, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde::Serialize;

use crate::clock::{MILLI, Micros, SECOND};
use crate::run::Plan;
use crate::topology::Channel;
use crate::wire::{Kind, Rpc, Usage};
use crate::world::Notes;

/// The maximum number of violations printed in full per rule.
const SHOWN: usize = 5;

/// The result of a run. Times are in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    seconds: u64,
    /// The network: links only, or the kernel.
    pub(crate) network: &'static str,
    rpcs: u64,
    succeeded: u64,
    failed: u64,
    by_channel: BTreeMap<&'static str, Counts>,
    by_kind: BTreeMap<&'static str, u64>,
    /// Failures by code and cause.
    causes: BTreeMap<String, u64>,
    /// Faults by target and kind.
    faults: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    updates: u64,
    nacks: u64,
    pub(crate) failovers: u64,
    /// The longest unary RPC that a healthy backend answered.
    #[serde(serialize_with = "as_millis")]
    pub(crate) longest_success: Micros,
    pub(crate) backends_back: Times,
    pub(crate) control_plane_back: Times,
    pub(crate) uses: Vec<Uses>,
    pub(crate) memory_per_minute_kib: f64,
    /// The longest scheduling delay of this machine.
    #[serde(serialize_with = "as_millis")]
    machine_delay: Micros,
    pub(crate) violations: Vec<Violation>,
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    rpcs: u64,
    failed: u64,
}

/// A violation.
#[derive(Debug, Serialize)]
pub(crate) struct Violation {
    pub(crate) rule: &'static str,
    /// Seconds since the start.
    pub(crate) at: f64,
    pub(crate) what: String,
    /// The faults around it.
    pub(crate) timeline: Vec<String>,
}

/// Statistics of a duration, in milliseconds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Times {
    count: usize,
    p50: f64,
    p99: f64,
    max: f64,
}

impl Times {
    pub(crate) fn of(mut times: Vec<Micros>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            let index = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
            times.get(index).map_or(0.0, |time| millis(*time))
        };
        Self { count: times.len(), p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// The resources that the client used at some point.
#[derive(Debug, Serialize)]
pub(crate) struct Uses {
    when: &'static str,
    rss_kib: u64,
    connections: usize,
    descriptors: usize,
    threads: usize,
    tasks: usize,
}

impl Uses {
    pub(crate) fn new(when: &'static str, usage: &Usage) -> Self {
        Self {
            when,
            rss_kib: usage.rss_kib,
            connections: usage.connections.len(),
            descriptors: usage.fds,
            threads: usage.threads,
            tasks: usage.tasks,
        }
    }
}

impl Report {
    pub(crate) fn new(notes: &Notes, plan: Plan, machine_delay: Micros) -> Self {
        let mut faults: BTreeMap<_, BTreeMap<_, u64>> = BTreeMap::new();
        for fault in &notes.faults {
            *faults.entry(fault.target.group()).or_default().entry(fault.kind.name()).or_default() += 1;
        }
        Self {
            seed: plan.seed,
            seconds: plan.lasts.as_secs(),
            network: "",
            rpcs: 0,
            succeeded: 0,
            failed: 0,
            by_channel: BTreeMap::new(),
            by_kind: BTreeMap::new(),
            causes: BTreeMap::new(),
            faults,
            updates: notes.history.updates,
            nacks: notes.history.nacks,
            failovers: 0,
            longest_success: 0,
            backends_back: Times::default(),
            control_plane_back: Times::default(),
            uses: Vec::new(),
            memory_per_minute_kib: 0.0,
            machine_delay,
            violations: Vec::new(),
        }
    }

    pub(crate) fn count(&mut self, channel: Channel, rpc: &Rpc) {
        let failed = u64::from(rpc.code != 0);
        self.rpcs += 1;
        self.failed += failed;
        self.succeeded += 1 - failed;
        let counts = self.by_channel.entry(channel.name()).or_default();
        counts.rpcs += 1;
        counts.failed += failed;
        let kind = match rpc.kind {
            Kind::Unary => "unary",
            Kind::Repeat => "server streaming",
            Kind::Chat => "bidirectional",
        };
        *self.by_kind.entry(kind).or_default() += 1;
    }

    pub(crate) fn explained(&mut self, code: u8, cause: &'static str) {
        let code = if code == 4 { "DEADLINE_EXCEEDED" } else { "UNAVAILABLE" };
        *self.causes.entry(format!("{code}: {cause}")).or_default() += 1;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "chaos for {} s, seed {}, on {}", self.seconds, self.seed, self.network)?;
        writeln!(f, "RPCs         {} sent, {} succeeded, {} failed", self.rpcs, self.succeeded, self.failed)?;
        for (channel, Counts { rpcs, failed }) in &self.by_channel {
            writeln!(f, "  {channel:<10} {rpcs:>8} sent {failed:>6} failed")?;
        }
        let kinds: Vec<String> = self.by_kind.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        writeln!(f, "  {}", kinds.join(", "))?;
        writeln!(f, "failures by cause")?;
        for (cause, count) in &self.causes {
            writeln!(f, "  {count:>6}  {cause}")?;
        }
        for (target, kinds) in &self.faults {
            let all: u64 = kinds.values().sum();
            let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            writeln!(f, "faults       {all} of {target}: {}", kinds.join(", "))?;
        }
        writeln!(f, "updates      {}, {} responses rejected by the client", self.updates, self.nacks)?;
        writeln!(f, "failovers    {}", self.failovers)?;
        writeln!(
            f,
            "stalls       {:.0} ms at most for an RPC that a healthy backend answered",
            millis(self.longest_success)
        )?;
        for (what, times) in
            [("backends", &self.backends_back), ("the control plane", &self.control_plane_back)]
        {
            let Times { count, p50, p99, max } = times;
            writeln!(
                f,
                "recovery     {count} outages of {what}: {p50:.0} ms p50, {p99:.0} ms p99, {max:.0} ms max"
            )?;
        }
        writeln!(f, "client          memory  connections  descriptors  threads  tasks")?;
        for Uses { when, rss_kib, connections, descriptors, threads, tasks } in &self.uses {
            let mib = rss_kib / 1024;
            writeln!(
                f,
                "  {mib:>14} MiB {connections:>12} {descriptors:>12} {threads:>8} {tasks:>6}  {when}"
            )?;
        }
        writeln!(
            f,
            "  memory grew by {:.0} KiB per minute over the second half",
            self.memory_per_minute_kib
        )?;
        writeln!(f, "machine      {:.0} ms scheduling delay at most", millis(self.machine_delay))?;
        write!(f, "violations   {}", self.violations.len())?;
        let mut shown: BTreeMap<&str, usize> = BTreeMap::new();
        for violation in &self.violations {
            let count = shown.entry(violation.rule).or_default();
            *count += 1;
            if *count <= SHOWN {
                write!(f, "\n\n{:.3} s: {}: {}", violation.at, violation.rule, violation.what)?;
                violation.timeline.iter().try_for_each(|line| write!(f, "\n  {line}"))?;
            }
        }
        for (rule, count) in shown.iter().filter(|(_, count)| **count > SHOWN) {
            write!(f, "\n\n{rule}: {} more", count - SHOWN)?;
        }
        Ok(())
    }
}

/// Every fault and every failed RPC, one line each, in order of time.
pub(crate) fn log(notes: &Notes) -> String {
    let since = |time: Micros| time.saturating_sub(notes.began) as f64 / SECOND as f64;
    let mut lines: Vec<(Micros, String)> = Vec::new();
    for fault in &notes.faults {
        let text = format!("until {:.3}  {} of {}", since(fault.end), fault.kind.name(), fault.target.name());
        lines.push((fault.start, text));
    }
    for rpc in notes.rpcs.iter().filter(|rpc| rpc.code != 0) {
        let to = rpc.port.and_then(|port| notes.addresses.iter().position(|address| address.port() == port));
        let to = to.map_or_else(|| "not sent".to_owned(), |backend| format!("b{backend}"));
        let channel = Channel::ALL.get(usize::from(rpc.channel)).map_or("?", |channel| channel.name());
        let message = rpc.message.as_deref().unwrap_or_default();
        let text = format!(
            "RPC since {:.3} {channel} {:?} {to} code {}: {message}",
            since(rpc.start),
            rpc.kind,
            rpc.code
        );
        lines.push((rpc.end, text));
    }
    lines.sort();
    lines.iter().fold(String::new(), |mut text, (at, line)| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:9.3}  {line}", since(*at));
        text
    })
}

fn millis(time: Micros) -> f64 {
    time as f64 / MILLI as f64
}

fn as_millis<S: serde::Serializer>(time: &Micros, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(millis(*time))
}
