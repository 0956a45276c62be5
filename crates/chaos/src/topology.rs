//! The mesh: its backends, clusters and channels.

use std::time::Duration;

use crate::clock::{Micros, SECOND, micros};

/// The number of backend processes.
pub(crate) const BACKENDS: usize = 10;
/// The name that the DNS cluster resolves.
pub(crate) const DNS_HOST: &str = "backends.chaos";
/// The cookie of the sessions.
pub(crate) const COOKIE: &str = "chaos-session";
/// The node id of clients whose ACKs are not recorded.
pub(crate) const FRESH_NODE: &str = "chaos-fresh";
/// The retries of the route with retries, after the first attempt.
pub(crate) const RETRIES: u32 = 4;

/// A set of backends, one bit each.
pub(crate) type Backends = u16;

/// Whether clients reach a backend through a link that the run can cut, delay or block.
pub(crate) fn is_linked(backend: usize) -> bool {
    backend % 2 == 1
}

/// The members of a set.
pub(crate) fn members(set: Backends) -> impl Iterator<Item = usize> {
    (0..BACKENDS).filter(move |backend| set & (1 << backend) != 0)
}

/// An EDS cluster: backend, zone and usual priority of each endpoint.
#[derive(Debug)]
pub(crate) struct EdsCluster {
    pub(crate) name: &'static str,
    pub(crate) home: &'static [(usize, u8, u32)],
}

pub(crate) const EAST: usize = 0;
pub(crate) const WEST: usize = 1;
pub(crate) const NEAR: usize = 2;
pub(crate) const FAR: usize = 3;
pub(crate) const STICKY: usize = 4;

pub(crate) const EDS_CLUSTERS: [EdsCluster; 5] = [
    EdsCluster { name: "east", home: &[(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 1, 0)] },
    EdsCluster { name: "west", home: &[(2, 0, 0), (3, 0, 0), (4, 1, 0), (5, 1, 0), (6, 2, 0)] },
    EdsCluster { name: "near", home: &[(4, 0, 0), (5, 0, 0), (6, 1, 1)] },
    EdsCluster { name: "far", home: &[(7, 0, 0), (8, 0, 0)] },
    EdsCluster { name: "sticky", home: &[(0, 0, 0), (5, 0, 0), (7, 1, 0), (9, 1, 0)] },
];

/// The addresses behind [`DNS_HOST`].
pub(crate) const DNS_BACKENDS: Backends = 1 << 8 | 1 << 9;

/// A channel of the client under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Weighted clusters with several zones each, and retries.
    Plain,
    /// An aggregate cluster of two, the first with several priorities.
    Aggregate,
    /// One LOGICAL_DNS cluster.
    Dns,
    /// Sessions by cookie.
    Session,
    /// Routed as `Plain`; created for a few RPCs and dropped, repeatedly.
    Short,
    /// As `Short`, each with a new xDS client, which has to request everything.
    Fresh,
}

impl Channel {
    pub(crate) const ALL: [Self; 6] =
        [Self::Plain, Self::Aggregate, Self::Dns, Self::Session, Self::Short, Self::Fresh];

    /// Its index in the list of all channels.
    pub(crate) fn number(self) -> usize {
        Self::ALL.iter().position(|channel| *channel == self).unwrap_or(0)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Aggregate => "aggregate",
            Self::Dns => "dns",
            Self::Session => "session",
            Self::Short => "short",
            Self::Fresh => "fresh",
        }
    }

    /// The keepalive interval and timeout, if it has keepalive.
    pub(crate) fn keepalive(self) -> Option<(Duration, Duration)> {
        (self == Self::Aggregate).then_some((Duration::from_secs(10), Duration::from_secs(2)))
    }

    /// The time after which a connection without progress is closed: the keepalive timeout (gRFC A18), or else 20
    /// seconds.
    pub(crate) fn gives_up(self) -> Micros {
        self.keepalive().map_or(20 * SECOND, |(_, timeout)| micros(timeout))
    }

    /// Whether it is created and dropped repeatedly.
    pub(crate) fn is_short_lived(self) -> bool {
        matches!(self, Self::Short | Self::Fresh)
    }

    /// Whether it uses the routes of `Plain`, which have retries.
    pub(crate) fn is_routed_as_plain(self) -> bool {
        matches!(self, Self::Plain | Self::Short | Self::Fresh)
    }

    /// The node id of its xDS client; each id has its own client.
    pub(crate) fn node(self) -> &'static str {
        if self == Self::Fresh { FRESH_NODE } else { "chaos" }
    }

    /// The name of the listener.
    pub(crate) fn service(self) -> &'static str {
        if self.is_routed_as_plain() { Self::Plain.name() } else { self.name() }
    }

    /// Every backend that it may use.
    pub(crate) fn reach(self) -> Backends {
        let of = |clusters: &[usize]| {
            let homes = clusters.iter().flat_map(|cluster| EDS_CLUSTERS[*cluster].home);
            homes.fold(0, |set, (backend, ..)| set | 1 << backend)
        };
        match self {
            Self::Plain | Self::Short | Self::Fresh => of(&[EAST, WEST]),
            Self::Aggregate => of(&[NEAR, FAR]),
            Self::Dns => DNS_BACKENDS,
            Self::Session => of(&[STICKY]),
        }
    }
}

/// The deadline of unary RPCs.
pub(crate) const UNARY_DEADLINE: Duration = Duration::from_secs(3);
/// The deadline of streams; healthy ones last two seconds at most.
pub(crate) const STREAM_DEADLINE: Duration = Duration::from_secs(10);
