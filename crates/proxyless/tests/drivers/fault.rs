//! The faults of a server, how each begins and ends, and the client's obligations during and after it.

use std::net::SocketAddr;
use std::time::Duration;

use crate::bad_peer::BadPeer;
use crate::load::Rate;
use crate::network::{BOTH, Network, Reach, Serve, USER_TIMEOUT};
use crate::pipe::{CAPACITY, CLIENT, SERVER};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its process is gone.
    Refused,
    /// Its host is gone: connections end, and attempts time out.
    ConnectBlackHole,
    /// Connections are reset, once.
    Reset,
    /// Connections are closed, once, as by a restart.
    Restart,
    /// No packets arrive in either direction. At the end, those in transit arrive.
    BlackHole,
    /// Existing connections are dead for good; new ones work.
    Frozen,
    StalledToServer,
    StalledToClient,
    /// Its HTTP/2 is invalid.
    Peer(BadPeer),
    /// A backend treats RPCs like this.
    Backend(crate::backend::Manner),
    /// A control plane treats streams like this.
    Plane(crate::plane::Manner),
    /// A control plane closes its connections after a burst of responses.
    DiesWithResponses,
}

/// The server with the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Plane,
    Backend,
}

impl Fault {
    /// The faults that every server can have.
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

    /// All faults of a backend.
    pub(crate) fn of_backends() -> Vec<Self> {
        use crate::backend::Manner::{Begin, Early, Fail, Mute, Refuse};
        Self::common().into_iter().chain([Mute, Refuse, Fail, Begin, Early].map(Self::Backend)).collect()
    }

    /// All faults of a control plane.
    pub(crate) fn of_planes() -> Vec<Self> {
        use crate::plane::Manner::{Deaf, EndAfterResponse, Mute, Refuse, Unasked, WithholdEndpoints};
        let manners = [Mute, EndAfterResponse, Refuse, Unasked, Deaf, WithholdEndpoints];
        Self::common().into_iter().chain(manners.map(Self::Plane)).chain([Self::DiesWithResponses]).collect()
    }

    /// Starts the network's part of it.
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

    /// Ends the network's part of it. A server that hangs is replaced, and its connections keep hanging: the client has
    /// to notice.
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
            // Nothing else would tell the client that the server is gone, or open the window of the connection.
            Self::Plane(crate::plane::Manner::Deaf) | Self::Backend(crate::backend::Manner::Early) => {
                network.kill(at);
            }
            _ => {}
        }
    }

    /// The recovery time after its end, for this duration of the fault.
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

    /// The maximum number of connections to a server with it in this time, from its start.
    pub(crate) fn most_connections(self, role: Role, lasted: Duration) -> usize {
        // The first attempt, one immediately after the loss of a connection, then one per backoff.
        let by_backoff = 3 + delays(lasted);
        match self {
            // The ADS and LRS streams have separate backoffs.
            _ if role == Role::Plane => 2 * by_backoff,
            // A connection that lived for a second before its first request resets the backoff.
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

/// The time that RPCs take to fill the buffers to a backend that does not read, if it gets a quarter of them.
fn fill(rate: Rate) -> Duration {
    rate.every * 4 * u32::try_from(CAPACITY / rate.bytes + 1).expect("a small number")
}

/// The longest delay between two attempts after failures for this long. The delays are 1 s times 1.6 to the n, up to
/// 120 s, plus or minus 20 %: a sum of t is followed by at most 0.9 t + 1.2 s.
fn backoff(lasted: Duration) -> Duration {
    (lasted.mul_f64(0.9) + Duration::from_millis(1200)).min(Duration::from_secs(144))
}

/// The minimum number of backoff delays that fit into this time.
fn delays(lasted: Duration) -> usize {
    let (mut sum, mut base, mut count) = (0.0, 0.8, 0);
    while sum + base <= lasted.as_secs_f64() {
        sum += base;
        base = (base * 1.6).min(96.0);
        count += 1;
    }
    count
}
