//! The mesh: which backends there are, which clusters they are in, and which channels use them.

use std::time::Duration;

use crate::clock::{Micros, SECOND, micros};

/// How many backend processes there are.
pub(crate) const BACKENDS: usize = 10;
/// The name that the DNS cluster resolves.
pub(crate) const DNS_HOST: &str = "backends.chaos";
/// The cookie of the sessions.
pub(crate) const COOKIE: &str = "chaos-session";
/// The node id of clients whose acceptance of a configuration says nothing about the others.
pub(crate) const FRESH_NODE: &str = "chaos-fresh";
/// The retries of the route with retries, after the first attempt.
pub(crate) const RETRIES: u32 = 4;

/// A set of backends, one bit each.
pub(crate) type Backends = u16;

/// Whether clients reach a backend through a link that the run can cut, delay or block.
pub(crate) fn is_linked(backend: usize) -> bool {
    backend % 2 == 1
}

/// The backends of a set.
pub(crate) fn members(set: Backends) -> impl Iterator<Item = usize> {
    (0..BACKENDS).filter(move |backend| set & (1 << backend) != 0)
}

/// A cluster that has its endpoints by EDS: backend, zone and usual priority of each.
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
    /// An aggregate cluster of two, the first with priorities of its own.
    Aggregate,
    /// One LOGICAL_DNS cluster.
    Dns,
    /// Sessions by cookie.
    Session,
    /// Routed as `Plain`; made for a few RPCs and dropped again, over and over.
    Short,
    /// As `Short`, and each with an xDS client of its own, which has to ask for everything.
    Fresh,
}

impl Channel {
    pub(crate) const ALL: [Self; 6] =
        [Self::Plain, Self::Aggregate, Self::Dns, Self::Session, Self::Short, Self::Fresh];

    /// Its place in the list of all.
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

    /// How long a connection takes nothing, or acknowledges nothing, before it is given up: the keepalive timeout
    /// (gRFC A18), else 20 seconds.
    pub(crate) fn gives_up(self) -> Micros {
        self.keepalive().map_or(20 * SECOND, |(_, timeout)| micros(timeout))
    }

    /// Whether it is made and dropped over and over.
    pub(crate) fn is_short_lived(self) -> bool {
        matches!(self, Self::Short | Self::Fresh)
    }

    /// Whether it uses the routes of `Plain`, which have retries.
    pub(crate) fn is_routed_as_plain(self) -> bool {
        matches!(self, Self::Plain | Self::Short | Self::Fresh)
    }

    /// The node id of its xDS client; another id, another client.
    pub(crate) fn node(self) -> &'static str {
        if self == Self::Fresh { FRESH_NODE } else { "chaos" }
    }

    /// The name of the listener.
    pub(crate) fn service(self) -> &'static str {
        if self.is_routed_as_plain() { Self::Plain.name() } else { self.name() }
    }

    /// Every backend that it may ever use.
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

/// How long unary RPCs may take.
pub(crate) const UNARY_DEADLINE: Duration = Duration::from_secs(3);
/// How long streams may take; they last two seconds at most where nothing is wrong.
pub(crate) const STREAM_DEADLINE: Duration = Duration::from_secs(10);
