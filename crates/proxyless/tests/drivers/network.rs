//! Hosts that are reached through pipes, and the faults of the network.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proxyless::connect::{Address, BoxedIo, Connecting, Connector};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::pipe::{CLIENT, End, Link, SERVER, pipe};
use crate::trace::Trace;

/// The time that a kernel waits for an acknowledgement: TCP_USER_TIMEOUT, as `TcpConnector` sets it.
pub(crate) const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// One way, for connecting and for bytes.
const LATENCY: Duration = Duration::from_millis(1);

/// The service of a host's connections.
pub(crate) type Serve = Arc<dyn Fn(End) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The result of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Open,
    Refused,
    /// It never completes.
    BlackHole,
}

/// All hosts. Clones share the network.
#[derive(Clone)]
pub(crate) struct Network {
    hosts: Arc<Mutex<BTreeMap<SocketAddr, Host>>>,
    trace: Trace,
}

struct Host {
    reach: Reach,
    serve: Serve,
    connections: Vec<(Link, JoinHandle<()>)>,
    attempts: usize,
}

impl Host {
    fn forget_ended(&mut self) {
        self.connections.retain(|(link, task)| link.is_open() || !task.is_finished());
    }
}

impl Network {
    pub(crate) fn new() -> Self {
        Self { hosts: Arc::default(), trace: Trace::start() }
    }

    /// Adds a host.
    pub(crate) fn host(&self, address: SocketAddr, serve: Serve) {
        let host = Host { reach: Reach::Open, serve, connections: Vec::new(), attempts: 0 };
        self.lock().insert(address, host);
    }

    /// Serves new connections like this; existing ones continue.
    pub(crate) fn set_server(&self, address: SocketAddr, serve: Serve) {
        self.with(address, |host| host.serve = serve);
    }

    pub(crate) fn set_reach(&self, address: SocketAddr, reach: Reach) {
        self.with(address, |host| host.reach = reach);
    }

    /// The server's process ends: its kernel closes the connections in order.
    pub(crate) fn kill(&self, address: SocketAddr) {
        let connections = self.with(address, |host| std::mem::take(&mut host.connections));
        connections.iter().for_each(|(_, task)| task.abort());
    }

    /// Cuts all connections.
    pub(crate) fn reset(&self, address: SocketAddr) {
        self.links(address).iter().for_each(|link| link.reset(io::ErrorKind::ConnectionReset));
    }

    /// Stalls or resumes the existing connections towards these sides.
    pub(crate) fn stall(&self, address: SocketAddr, writers: &[usize], stalled: bool) {
        for link in self.links(address) {
            writers.iter().for_each(|&writer| link.set_stalled(writer, stalled));
            if stalled && writers.contains(&CLIENT) {
                tokio::spawn(user_timeout(link));
            }
        }
    }

    /// Like [`stall`](Self::stall) in both directions, for good, with a kernel that never gives up.
    pub(crate) fn freeze(&self, address: SocketAddr) {
        for link in self.links(address) {
            BOTH.iter().for_each(|&writer| link.set_stalled(writer, true));
        }
    }

    /// The connections that are open.
    pub(crate) fn open(&self, address: SocketAddr) -> usize {
        self.links(address).len()
    }

    /// Ends the servers of dead connections that the client has closed, which they do not notice.
    pub(crate) fn reap(&self) {
        for host in self.lock().values_mut() {
            let cut_off = |link: &Link| !link.is_open() && BOTH.iter().any(|&writer| link.is_stalled(writer));
            host.connections.iter().filter(|(link, _)| cut_off(link)).for_each(|(_, task)| task.abort());
        }
    }

    /// The number of connection attempts to the host since [`forget_attempts`](Self::forget_attempts).
    pub(crate) fn attempts(&self, address: SocketAddr) -> usize {
        self.with(address, |host| host.attempts)
    }

    pub(crate) fn forget_attempts(&self, address: SocketAddr) {
        self.with(address, |host| host.attempts = 0);
    }

    /// The trace so far.
    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    fn links(&self, address: SocketAddr) -> Vec<Link> {
        self.with(address, |host| {
            host.forget_ended();
            host.connections.iter().map(|(link, _)| link.clone()).filter(Link::is_open).collect()
        })
    }

    fn with<T>(&self, address: SocketAddr, act: impl FnOnce(&mut Host) -> T) -> T {
        act(self.lock().get_mut(&address).expect("a host of this network"))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client's kernel closes a connection whose bytes are not acknowledged.
async fn user_timeout(link: Link) {
    while link.is_open() && link.is_stalled(CLIENT) {
        if link.unacknowledged_since(CLIENT).is_some_and(|since| since.elapsed() >= USER_TIMEOUT) {
            return link.reset(io::ErrorKind::TimedOut);
        }
        sleep(Duration::from_secs(1)).await;
    }
}

impl Connector for Network {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        let &Address::Tcp(address) = address else { unreachable!("hosts have IP addresses") };
        Box::pin(async move {
            let attempted = |host: &mut Host| host.attempts += 1;
            let known = self.lock().get_mut(&address).map(attempted).is_some();
            self.trace.note(&format!("connect {address}"));
            sleep(LATENCY * 2).await;
            let reach = if known { self.with(address, |host| host.reach) } else { Reach::Refused };
            match reach {
                Reach::Refused => Err(io::ErrorKind::ConnectionRefused.into()),
                Reach::BlackHole => std::future::pending().await,
                Reach::Open => {
                    let (client, server) = pipe(LATENCY);
                    let link = server.link();
                    self.with(address, |host| {
                        host.forget_ended();
                        host.connections.push((link, tokio::spawn((host.serve)(server))));
                    });
                    Ok(BoxedIo::new(client))
                }
            }
        })
    }
}

/// Both directions.
pub(crate) const BOTH: [usize; 2] = [CLIENT, SERVER];
