//! What can go wrong with a server, how it begins and ends, and what the client owes meanwhile and afterwards.

use std::net::SocketAddr;
use std::time::Duration;

use crate::bad_peer::BadPeer;
use crate::load::Rate;
use crate::network::{BOTH, Network, Reach, Serve, USER_TIMEOUT};
use crate::pipe::{CAPACITY, CLIENT, SERVER};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its process is gone.
    Refused,
    /// Its host is gone: connections end, and nobody answers attempts.
    ConnectBlackHole,
    /// Connections are cut, once.
    Reset,
    /// Connections are closed, once: it restarts.
    Restart,
    /// Nothing reaches it or comes from it. At the end, what was on its way arrives.
    BlackHole,
    /// The connections that exist carry nothing any more, for good; others work.
    Frozen,
    StalledToServer,
    StalledToClient,
    /// Its HTTP/2 is bad.
    Peer(BadPeer),
    /// A backend does this with RPCs.
    Backend(crate::backend::Manner),
    /// A control plane does this with streams.
    Plane(crate::plane::Manner),
    /// A control plane ends its connections behind a burst of responses.
    DiesWithResponses,
}

/// Who has the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Plane,
    Backend,
}

impl Fault {
    /// Those that every server can have.
    pub(crate) fn common() -> Vec<Self> {
        let network = [
            Self::Refused,
            Self::ConnectBlackHole,
            Self::Reset,
            Self::Restart,
            Self::BlackHole,
            Self::Frozen,
            Self::StalledToServer,
            Self::StalledToClient,
        ];
        network.into_iter().chain(BadPeer::ALL.map(Self::Peer)).collect()
    }

    /// All of a backend.
    pub(crate) fn of_backends() -> Vec<Self> {
        use crate::backend::Manner::{Begin, Early, Fail, Mute, Refuse};
        Self::common().into_iter().chain([Mute, Refuse, Fail, Begin, Early].map(Self::Backend)).collect()
    }

    /// All of a control plane.
    pub(crate) fn of_planes() -> Vec<Self> {
        use crate::plane::Manner::{Deaf, EndAfterResponse, Mute, Refuse, Unasked, WithholdEndpoints};
        let manners = [Mute, EndAfterResponse, Refuse, Unasked, Deaf, WithholdEndpoints];
        Self::common().into_iter().chain(manners.map(Self::Plane)).chain([Self::DiesWithResponses]).collect()
    }

    /// Begins the part of it that is the network's.
    pub(crate) fn begin(self, network: &Network, at: SocketAddr) {
        match self {
            Self::Refused => {
                network.set_reach(at, Reach::Refused);
                network.kill(at);
            }
            Self::ConnectBlackHole => {
                network.set_reach(at, Reach::BlackHole);
                network.kill(at);
            }
            Self::Reset => network.reset(at),
            Self::Restart => network.kill(at),
            Self::BlackHole => {
                network.set_reach(at, Reach::BlackHole);
                network.stall(at, &BOTH, true);
            }
            Self::Frozen => network.stall(at, &BOTH, true),
            Self::StalledToServer => network.stall(at, &[CLIENT], true),
            Self::StalledToClient => network.stall(at, &[SERVER], true),
            Self::Peer(peer) => {
                network.set_server(at, peer.server());
                network.kill(at);
            }
            Self::Backend(_) | Self::Plane(_) | Self::DiesWithResponses => {}
        }
    }

    /// Ends the part of it that is the network's. A server that hangs is replaced, and what is connected to it goes on
    /// hanging: the client has to notice.
    pub(crate) fn end(self, network: &Network, at: SocketAddr, good: Serve) {
        network.set_reach(at, Reach::Open);
        match self {
            Self::BlackHole | Self::StalledToServer | Self::StalledToClient => {
                network.stall(at, &BOTH, false);
            }
            Self::Peer(BadPeer::NoSettings | BadPeer::Hung) => network.set_server(at, good),
            Self::Peer(_) => {
                network.set_server(at, good);
                network.kill(at);
            }
            // Nothing else would tell the client that nobody listens, or open the window of the connection.
            Self::Plane(crate::plane::Manner::Deaf) | Self::Backend(crate::backend::Manner::Early) => {
                network.kill(at);
            }
            _ => {}
        }
    }

    /// How long after its end everything works again, if it lasted so long.
    pub(crate) fn recovery(self, role: Role, lasted: Duration, rate: Rate) -> Duration {
        let after = match self {
            Self::Refused | Self::Backend(_) | Self::Plane(_) => backoff(lasted),
            Self::ConnectBlackHole | Self::BlackHole | Self::Peer(BadPeer::NoSettings) => {
                CONNECT_TIMEOUT + backoff(lasted)
            }
            Self::Reset | Self::Restart | Self::DiesWithResponses => backoff(Duration::ZERO),
            Self::StalledToServer | Self::StalledToClient => USER_TIMEOUT + backoff(Duration::ZERO),
            Self::Frozen | Self::Peer(BadPeer::Hung) => match role {
                Role::Plane => KEEPALIVE + backoff(lasted),
                // TCP_USER_TIMEOUT, or the write timeout once the buffers are full.
                Role::Backend => fill(rate) + WRITE_TIMEOUT + backoff(Duration::ZERO),
            },
            Self::Peer(_) => backoff(lasted),
        };
        after + MARGIN
    }

    /// How often a server with it may be connected to in so much time, counted from its beginning.
    pub(crate) fn most_connections(self, role: Role, lasted: Duration) -> usize {
        // The first attempt, one at once after the loss of a connection, then one per delay of the backoff.
        let by_backoff = 3 + delays(lasted);
        match self {
            // The streams for configuration and for load reports have a backoff each.
            _ if role == Role::Plane => 2 * by_backoff,
            // A connection that has lived for a second, before its first request came, resets the backoff.
            Self::Peer(BadPeer::GoAwayToRequest) => by_backoff + lasted.as_secs() as usize,
            _ => by_backoff,
        }
    }
}

/// The default of channels, and what control planes get.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Of control planes: interval and timeout.
const KEEPALIVE: Duration = Duration::from_secs(320);
/// For connecting, a response and an RPC.
const MARGIN: Duration = Duration::from_secs(1);

/// How long RPCs take to fill the buffers to a backend that reads nothing, if it gets a fourth of them.
fn fill(rate: Rate) -> Duration {
    rate.every * 4 * u32::try_from(CAPACITY / rate.bytes + 1).expect("a small number")
}

/// The longest delay between two attempts after failures for so long. The delays are 1 s times 1.6 to the n, up to
/// 120 s, each of them 20 % shorter or longer: what has added up to t is followed by at most 0.9 t + 1.2 s.
fn backoff(lasted: Duration) -> Duration {
    (lasted.mul_f64(0.9) + Duration::from_millis(1200)).min(Duration::from_secs(144))
}

/// How many delays of the backoff fit into so much time, at the least.
fn delays(lasted: Duration) -> usize {
    let (mut sum, mut base, mut count) = (0.0, 0.8, 0);
    while sum + base <= lasted.as_secs_f64() {
        sum += base;
        base = (base * 1.6).min(96.0);
        count += 1;
    }
    count
}
