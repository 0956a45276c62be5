//! The injected faults: their kinds, the failures that they excuse, and their times.

use crate::clock::{MILLI, Micros};
use crate::topology::EDS_CLUSTERS;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    /// SIGKILL; at the end a new process starts on the same port.
    Kill,
    /// SIGSTOP, and SIGCONT at the end.
    Stop,
    /// GOAWAY on all connections.
    Drain,
    /// All connections are reset once.
    Cut,
    /// All connections are reset, and new ones at once.
    Refuse,
    /// Packets are dropped silently.
    BlackHole,
    /// Every packet is delayed.
    Delay,
    /// Some packets are delayed by a retransmission.
    Loss,
    /// The streams end with OK or an error.
    EndStreams,
    /// A cluster lists no endpoints.
    Emptied,
    /// A Cluster resource is deleted.
    Deleted,
}

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Backend(usize),
    ControlPlane,
    Cluster(usize),
    /// The whole network.
    Network,
}

/// A fault and its interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) target: Target,
    pub(crate) start: Micros,
    /// `Micros::MAX` while it lasts.
    pub(crate) end: Micros,
}

impl FaultKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Drain => "drain",
            Self::Cut => "cut",
            Self::Refuse => "refuse",
            Self::BlackHole => "black hole",
            Self::Delay => "delay",
            Self::Loss => "loss",
            Self::EndStreams => "end streams",
            Self::Emptied => "no endpoints",
            Self::Deleted => "cluster deleted",
        }
    }

    /// Whether RPCs in flight may be lost. A drain loses none.
    pub(crate) fn breaks(self) -> bool {
        matches!(self, Self::Kill | Self::Cut | Self::Refuse)
    }

    /// Whether RPCs in flight may wait for its end. A delay is far shorter than any deadline.
    pub(crate) fn stalls(self) -> bool {
        matches!(self, Self::Stop | Self::BlackHole | Self::Loss)
    }
}

impl Target {
    /// The name of the target.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Backend(_) => "backends",
            Self::ControlPlane => "the control plane",
            Self::Cluster(_) => "configuration",
            Self::Network => "the network",
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Backend(backend) => format!("b{backend}"),
            Self::ControlPlane => "control plane".into(),
            Self::Cluster(cluster) => EDS_CLUSTERS[cluster].name.into(),
            Self::Network => "network".into(),
        }
    }
}

impl Fault {
    pub(crate) fn overlaps(&self, from: Micros, to: Micros) -> bool {
        self.start <= to && self.end >= from
    }
}

/// An interval in which a target may have been unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) start: Micros,
    pub(crate) end: Micros,
    /// By then a client with gRPC's backoff has reconnected.
    pub(crate) over: Micros,
}

/// The outages of one target; faults in close succession count as one.
///
/// `proven` returns whether the client is known to have had a connection between two times, which resets its backoff;
/// faults without a connection in between are one outage.
///
/// A client that could not connect for a time `d` has waited 1 s, 1.6 s, 2.56 s ... between its attempts, plus up to 20
/// %; so the next attempt is made within 1.2 * (1 s + 0.6 d). Half a second is for the connection itself.
pub(crate) fn outages(
    faults: &[Fault],
    target: Target,
    proven: impl Fn(Micros, Micros) -> bool,
) -> Vec<Outage> {
    let mut outages: Vec<Outage> = Vec::new();
    let mut hits: Vec<&Fault> = faults
        .iter()
        .filter(|fault| {
            fault.target == target && (fault.kind.breaks() || fault.kind.stalls() || is_stream_end(fault))
        })
        .collect();
    hits.sort_by_key(|fault| fault.start);
    for fault in hits {
        let merged = match outages.last_mut() {
            Some(last)
                if fault.start <= last.end || !proven(last.end, fault.start) && fault.start < last.over =>
            {
                last.end = last.end.max(fault.end);
                last
            }
            _ => {
                outages.push(Outage { start: fault.start, end: fault.end, over: 0 });
                // It was just pushed.
                let Some(last) = outages.last_mut() else { continue };
                last
            }
        };
        let lasted = merged.end.saturating_sub(merged.start);
        merged.over = merged.end.saturating_add((1_000 * MILLI + lasted / 10 * 6) / 10 * 12 + 500 * MILLI);
    }
    outages
}

fn is_stream_end(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::EndStreams | FaultKind::Drain) && fault.target == Target::ControlPlane
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;

    fn fault(kind: FaultKind, start: Micros, end: Micros) -> Fault {
        Fault { kind, target: Target::Backend(0), start: start * SECOND, end: end * SECOND }
    }

    #[test]
    fn faults_in_a_row_are_one_outage_and_drains_are_none() {
        let faults = [
            fault(FaultKind::Kill, 10, 12),
            fault(FaultKind::Drain, 11, 40),
            fault(FaultKind::Stop, 13, 15),
            fault(FaultKind::Cut, 60, 60),
        ];
        let found = outages(&faults, Target::Backend(0), |_, _| false);
        let times: Vec<_> = found.iter().map(|outage| (outage.start / SECOND, outage.end / SECOND)).collect();
        assert_eq!(times, [(10, 15), (60, 60)]);
        assert_eq!(found[0].over, 15 * SECOND + 4_800 * MILLI + 500 * MILLI);
        assert_eq!(
            outages(&faults, Target::Backend(0), |_, _| true).len(),
            3,
            "it had a connection in between"
        );
        assert_eq!(outages(&faults, Target::Backend(1), |_, _| false), []);
    }
}
