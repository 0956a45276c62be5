//! A link to a server: a port that forwards everything until it is told to cut, refuse, hold back, delay or lose.
//!
//! Lost data of a TCP connection arrives later, after a retransmission, and delays everything behind it. `lossy` does
//! the same.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use proxyless_sans_io::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// The current behaviour of a link.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    blocked: bool,
    refusing: bool,
    lossy: bool,
    delay: Duration,
    /// The number of times that its connections were cut.
    cuts: u64,
}

/// A link that runs in the local task set until dropped.
#[derive(Debug)]
pub(crate) struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: tokio::task::JoinHandle<()>,
}

impl Link {
    /// Listens on a free loopback port and forwards connections to `target`.
    pub(crate) async fn start(target: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let address = listener.local_addr()?;
        let state = watch::Sender::new(State::default());
        let task = tokio::task::spawn_local(accept(listener, target, state.subscribe(), Rng::new(seed)));
        Ok(Self { address, state, task })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets all connections.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Resets all connections, and new ones at once.
    pub(crate) fn refuse(&self) {
        self.state.send_modify(|state| {
            state.cuts += 1;
            state.refusing = true;
        });
    }

    /// Forwards nothing, not even the end of a connection.
    pub(crate) fn block(&self) {
        self.state.send_modify(|state| state.blocked = true);
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }

    pub(crate) fn lose(&self) {
        self.state.send_modify(|state| state.lossy = true);
    }

    /// Restores normal behaviour.
    pub(crate) fn heal(&self) {
        self.state.send_modify(|state| *state = State { cuts: state.cuts, ..State::default() });
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, state: watch::Receiver<State>, mut rng: Rng) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::task::spawn_local(carry(stream, target, state.clone(), Rng::new(rng.next_u64())));
            }
            // Out of descriptors: later connections may succeed.
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// One connection from start to end.
async fn carry(mut client: TcpStream, target: SocketAddr, state: watch::Receiver<State>, mut rng: Rng) {
    let cuts = state.borrow().cuts;
    let pass = async {
        passable(&mut state.clone()).await;
        if state.borrow().refusing {
            return None;
        }
        let mut server = TcpStream::connect(target).await.ok()?;
        // Small frames must not be delayed; a socket that refuses is about to close anyway.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let there = pump(from_client, to_server, state.clone(), Rng::new(rng.next_u64()));
        let back = pump(from_server, to_client, state.clone(), Rng::new(rng.next_u64()));
        let passed = tokio::try_join!(there, back);
        if passed.is_err() {
            let _ = server.set_zero_linger();
        }
        passed.ok()
    };
    let cut = async {
        // The sender is dropped with the link, which closes its connections.
        let _ = state.clone().wait_for(|state| state.cuts != cuts).await;
    };
    let ended = tokio::select! {
        passed = pass => passed,
        () = cut => None,
    };
    if ended.is_none() {
        // Otherwise the peer would see an orderly close.
        let _ = client.set_zero_linger();
    }
}

/// Waits until nothing is held back.
async fn passable(state: &mut watch::Receiver<State>) {
    let _ = state.wait_for(|state| !state.blocked).await;
}

/// Forwards one direction.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut state: watch::Receiver<State>,
    mut rng: Rng,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        passable(&mut state).await;
        let State { delay, lossy, .. } = *state.borrow();
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if lossy && rng.below(20) == 0 {
            sleep(Duration::from_millis(200 + rng.below(500))).await;
        }
        match read? {
            0 => return to.shutdown().await,
            count => to.write_all(&buffer[..count]).await?,
        }
    }
}
