//! A long link: a TCP relay that forwards everything a little later.
//!
//! It reads eagerly into an unlimited queue, so the link has a delay and no bandwidth limit: only the flow-control windows of
//! HTTP/2 limit what is on its way.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// The delay in each direction.
const DELAY: Duration = Duration::from_millis(25);

/// A running relay. Ends, with its connections, when dropped.
pub(crate) struct Relay {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Relay {
    /// Relays connections to this address.
    pub(crate) async fn start(to: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        if let Ok((near, _)) = accepted {
                            connections.spawn(connection(near, to));
                        }
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { address, task })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connection(near: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    let far = TcpStream::connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::try_join!(direction(near_read, far_write), direction(far_read, near_write))?;
    Ok(())
}

async fn direction(from: OwnedReadHalf, to: OwnedWriteHalf) -> std::io::Result<()> {
    let (sender, receiver) = mpsc::unbounded_channel();
    // Not two branches of one task: a long write must not keep the other from reading.
    let mut tasks = JoinSet::new();
    tasks.spawn(read(from, sender));
    tasks.spawn(write(receiver, to));
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(std::io::Error::other)??;
    }
    Ok(())
}

async fn read(
    mut from: OwnedReadHalf,
    queue: mpsc::UnboundedSender<(Instant, Bytes)>,
) -> std::io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(256 * 1024);
        if from.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        if queue.send((Instant::now() + DELAY, buffer.split().freeze())).is_err() {
            return Ok(());
        }
    }
}

async fn write(
    mut queue: mpsc::UnboundedReceiver<(Instant, Bytes)>,
    mut to: OwnedWriteHalf,
) -> std::io::Result<()> {
    while let Some((due, bytes)) = queue.recv().await {
        tokio::time::sleep_until(due).await;
        to.write_all(&bytes).await?;
    }
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_arrive_in_order_and_not_before_the_delay() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let relay = Relay::start(listener.local_addr().unwrap()).await.unwrap();
        let echo = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut read, mut write) = stream.split();
            tokio::io::copy(&mut read, &mut write).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let sent: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
        let client = async {
            let start = Instant::now();
            let (mut read, mut write) = TcpStream::connect(relay.address()).await.unwrap().into_split();
            let (written, mut received) = (sent.clone(), Vec::new());
            let writing = async move {
                write.write_all(&written).await.unwrap();
                write.shutdown().await.unwrap();
            };
            tokio::join!(writing, async { read.read_to_end(&mut received).await.unwrap() });
            assert!(start.elapsed() >= 2 * DELAY, "{:?}", start.elapsed());
            assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
        };
        tokio::join!(echo, client);
    }
}
