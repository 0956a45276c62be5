//! Judges a run: the outcome of every RPC, leaks and recovery times.
//!
//! The rules for RPCs are in [`rpcs`], those for leaks in [`leaks`], those for recovery in [`recovery`].

mod leaks;
mod recovery;
mod rpcs;
#[cfg(test)]
mod tests;

use crate::clock::{Delays, MILLI, Micros, SECOND};
use crate::faults::{Fault, FaultKind, Outage, Target, outages};
use crate::history::Listed;
use crate::report::{Report, Violation};
use crate::run::Plan;
use crate::topology::{
    BACKENDS, Backends, Channel, DNS_BACKENDS, EAST, FAR, NEAR, STICKY, WEST, is_linked, members,
};
use crate::world::Notes;

/// The records of a run, indexed for the rules.
struct Case<'a> {
    notes: &'a Notes,
    delays: Delays,
    /// By channel and backend: each channel has its own connections.
    outages: Vec<Vec<Vec<Outage>>>,
    plane_outages: Vec<Outage>,
    /// Sorted by start, with the longest duration.
    faults: Vec<Fault>,
    longest: Micros,
}

/// Judges a run.
pub(crate) fn judge(notes: &Notes, plan: Plan) -> Report {
    let case = Case::new(notes);
    let mut report = Report::new(notes, plan, case.delays.max());
    for problem in &notes.problems {
        report.violations.push(case.violation("the run itself", notes.began, problem.clone()));
    }
    rpcs::judge(&case, &mut report);
    recovery::judge(&case, &mut report);
    leaks::judge(&case, &mut report);
    report
}

impl<'a> Case<'a> {
    fn new(notes: &'a Notes) -> Self {
        let mut faults = Vec::new();
        for fault in &notes.faults {
            // A fault of the network affects all targets.
            let all = || (0..BACKENDS).map(Target::Backend).chain([Target::ControlPlane]);
            match fault.target {
                Target::Network => faults.extend(all().map(|target| Fault { target, ..*fault })),
                _ => faults.push(*fault),
            }
        }
        faults.iter_mut().for_each(lengthen);
        faults.sort_by_key(|fault| fault.start);
        let lasted = |fault: &Fault| fault.end.saturating_sub(fault.start);
        Self {
            notes,
            delays: Delays::new(notes.late.clone()),
            outages: outages_of_backends(notes, &faults),
            plane_outages: outages(&faults, Target::ControlPlane, |from, to| {
                notes.history.first_ack_after(from + 1).is_some_and(|at| at < to)
            }),
            longest: faults.iter().map(lasted).max().unwrap_or(0),
            faults,
        }
    }

    /// The longest delay between cause and effect: 300 ms, plus three times the scheduling delay of this machine at the
    /// time.
    fn grace(&self, from: Micros, to: Micros) -> Micros {
        300 * MILLI + 3 * self.delays.longest(from.saturating_sub(SECOND), to + SECOND)
    }

    /// The faults in progress in this interval.
    fn faults_in(&self, from: Micros, to: Micros) -> impl Iterator<Item = &Fault> {
        let first = self.faults.partition_point(|fault| fault.start.saturating_add(self.longest) < from);
        self.faults[first..]
            .iter()
            .take_while(move |fault| fault.start <= to)
            .filter(move |f| f.overlaps(from, to))
    }

    /// Whether a channel may have been without a connection to a backend at some point of this interval.
    fn is_out(&self, channel: Channel, backend: usize, from: Micros, to: Micros) -> bool {
        let outages = &self.outages[channel.number()][backend];
        // Outages of one backend do not overlap.
        let first = outages.partition_point(|outage| outage.over < from);
        outages.get(first).is_some_and(|outage| outage.start <= to)
    }

    /// Whether the control plane may have been unreachable at some point of this interval.
    fn is_plane_out(&self, from: Micros, to: Micros) -> bool {
        self.plane_outages.iter().any(|outage| outage.start <= to && outage.over >= from)
    }

    /// Whether there was a resource that must be rejected.
    fn has_rejected(&self, from: Micros, to: Micros) -> bool {
        self.notes.rejected.iter().any(|(start, end)| *start <= to && *end >= from)
    }

    /// The members of a set that were healthy throughout this interval.
    fn healthy(&self, channel: Channel, set: Backends, from: Micros, to: Micros) -> Backends {
        members(set)
            .filter(|backend| !self.is_out(channel, *backend, from, to))
            .fold(0, |set, backend| set | 1 << backend)
    }

    /// The backends of each cluster to which an RPC of this channel may have been routed in this interval.
    fn choices(&self, channel: Channel, from: Micros, to: Micros, grace: Micros) -> Vec<Listed> {
        let history = &self.notes.history;
        // The recorded ACKs are of the other client; this one may have been in backoff meanwhile.
        let from = if channel == Channel::Fresh { from.saturating_sub(5 * SECOND) } else { from };
        let listed = |cluster| history.listed(cluster, from, to, grace);
        match channel {
            Channel::Plain | Channel::Short | Channel::Fresh => {
                let routed = history.routed(from, to, grace);
                let clusters = [EAST, WEST].into_iter().zip(routed);
                clusters.filter(|(_, routed)| *routed).map(|(cluster, _)| listed(cluster)).collect()
            }
            // Either can replace the other.
            Channel::Aggregate => {
                let (near, far) = (listed(NEAR), listed(FAR));
                vec![Listed { maybe: near.maybe | far.maybe, surely: near.surely | far.surely }]
            }
            Channel::Dns => vec![Listed { maybe: DNS_BACKENDS, surely: DNS_BACKENDS }],
            Channel::Session => vec![listed(STICKY)],
        }
    }

    /// The backend behind a port.
    fn backend_at(&self, port: u16) -> Option<usize> {
        self.notes.addresses.iter().position(|address| address.port() == port)
    }

    /// A violation with the faults around it.
    fn violation(&self, rule: &'static str, at: Micros, what: String) -> Violation {
        let since = |time: Micros| (time.saturating_sub(self.notes.began)) as f64 / SECOND as f64;
        let around = self.faults_in(at.saturating_sub(5 * SECOND), at + SECOND).map(|fault| {
            let (start, end) = (since(fault.start), since(fault.end.min(at + 60 * SECOND)));
            format!("{start:9.3} to {end:9.3}  {} of {}", fault.kind.name(), fault.target.name())
        });
        Violation { rule, at: since(at), what, timeline: around.collect() }
    }
}

/// After dropping packets, the kernel retransmits with exponential backoff: it takes at most as long as the fault
/// lasted. Short losses of the whole network take less than a second.
fn lengthen(fault: &mut Fault) {
    let lasted = fault.end.saturating_sub(fault.start);
    match (fault.kind, fault.target) {
        (FaultKind::BlackHole, Target::Backend(backend)) if !is_linked(backend) => {
            fault.end = fault.end.saturating_add(lasted);
        }
        (FaultKind::Loss, Target::Backend(backend)) if !is_linked(backend) => {
            fault.end = fault.end.saturating_add(SECOND);
        }
        _ => {}
    }
}

/// The outages of all backends as seen by each channel: a response proves that it had a connection.
fn outages_of_backends(notes: &Notes, faults: &[Fault]) -> Vec<Vec<Vec<Outage>>> {
    let mut answers = vec![vec![Vec::new(); BACKENDS]; Channel::ALL.len()];
    for rpc in notes.rpcs.iter().filter(|rpc| rpc.code == 0) {
        if let Some(backend) = rpc.backend {
            answers[usize::from(rpc.channel)][usize::from(backend)].push(rpc.start);
        }
    }
    let of_channel = |answers: Vec<Vec<Micros>>| {
        let of_backend = |(backend, mut starts): (usize, Vec<Micros>)| {
            starts.sort_unstable();
            outages(faults, Target::Backend(backend), |from, to| {
                let next = starts.partition_point(|start| *start <= from);
                starts.get(next).is_some_and(|start| *start < to)
            })
        };
        answers.into_iter().enumerate().map(of_backend).collect()
    };
    answers.into_iter().map(of_channel).collect()
}
