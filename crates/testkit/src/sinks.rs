//! Addresses without a server: one that accepts and stays silent, one that refuses.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::observed::{Observed, PATIENCE, TimedOut};
use crate::server::Port;

/// A port that accepts connections and never sends anything.
#[derive(Debug)]
pub struct BlackHole {
    port: Port,
    accepted: Arc<Observed<usize>>,
    task: AbortHandle,
}

impl BlackHole {
    /// Listens on a free loopback port.
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn start() -> io::Result<Self> {
        let port = Port::reserve()?;
        let listener = port.listen()?;
        let accepted = Arc::new(Observed::new(0));
        let task = tokio::spawn(swallow(listener, accepted.clone())).abort_handle();
        Ok(Self { port, accepted, task })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.accepted.read(|n| *n)
    }

    /// Waits until at least this many connections were accepted.
    ///
    /// # Errors
    /// If that takes more than 10 seconds.
    pub async fn wait_connections(&self, count: usize) -> Result<(), TimedOut> {
        let enough = |n: &usize| (*n >= count).then_some(());
        self.accepted.wait(PATIENCE, format!("{count} connections"), enough, usize::to_string).await
    }
}

impl Drop for BlackHole {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn swallow(listener: TcpListener, accepted: Arc<Observed<usize>>) {
    let mut held = Vec::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                held.push(stream);
                accepted.update(|n| *n += 1);
            }
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// A port that refuses connections. It stays reserved while this value exists.
#[derive(Debug)]
pub struct DeadAddress(Port);

impl DeadAddress {
    /// The refusing address.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// A loopback address that refuses connections.
///
/// # Errors
/// If no port can be bound.
pub fn dead_address() -> io::Result<DeadAddress> {
    Port::reserve().map(DeadAddress)
}
