//! A hostile DNS server: packets byte by byte, over UDP and TCP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::common::PATIENCE;

pub(crate) const A: u16 = 1;
pub(crate) const CNAME: u16 = 5;
pub(crate) const AAAA: u16 = 28;

/// A response, to a recursive query.
pub(crate) const ANSWER: u16 = 0x8180;
pub(crate) const TRUNCATED: u16 = ANSWER | 0x0200;
pub(crate) const SERVFAIL: u16 = ANSWER | 2;
pub(crate) const NXDOMAIN: u16 = ANSWER | 3;

/// A received query.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) id: u16,
    /// Its number, from 1.
    pub(crate) number: usize,
    /// The name as it is in the packet.
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u16,
    pub(crate) over_tcp: bool,
}

pub(crate) struct Record {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u16,
    pub(crate) ttl: u32,
    pub(crate) data: Vec<u8>,
}

impl Question {
    fn parse(packet: &[u8], number: usize, over_tcp: bool) -> Self {
        let end = 12 + packet[12..].iter().position(|byte| *byte == 0).expect("a name ends") + 1;
        let kind = u16::from_be_bytes([packet[end], packet[end + 1]]);
        let id = u16::from_be_bytes([packet[0], packet[1]]);
        Self { id, number, name: packet[12..end].to_vec(), kind, over_tcp }
    }

    /// A record of this type for the queried name.
    pub(crate) fn record(&self, kind: u16, ttl: u32, data: &[u8]) -> Record {
        Record { name: self.name.clone(), kind, ttl, data: data.to_vec() }
    }

    /// A response to the query.
    pub(crate) fn answer(&self, flags: u16, records: &[Record]) -> Vec<u8> {
        let mut packet = Vec::new();
        let count = u16::try_from(records.len()).expect("a count of two bytes");
        for part in [self.id, flags, 1, count, 0, 0] {
            packet.extend_from_slice(&part.to_be_bytes());
        }
        packet.extend_from_slice(&self.name);
        packet.extend_from_slice(&[self.kind.to_be_bytes(), [0, 1]].concat());
        for record in records {
            // The queried name is at offset 12.
            let name = if record.name == self.name { &[0xc0, 12] } else { &record.name[..] };
            let length = u16::try_from(record.data.len()).expect("short data");
            packet.extend_from_slice(name);
            packet.extend_from_slice(&[record.kind.to_be_bytes(), [0, 1]].concat());
            packet.extend_from_slice(&record.ttl.to_be_bytes());
            packet.extend_from_slice(&length.to_be_bytes());
            packet.extend_from_slice(&record.data);
        }
        packet
    }

    /// The address for A, and nothing for AAAA.
    pub(crate) fn address(&self, ttl: u32, ip: [u8; 4]) -> Vec<u8> {
        let records: Vec<_> = (self.kind == A).then(|| self.record(A, ttl, &ip)).into_iter().collect();
        self.answer(ANSWER, &records)
    }
}

/// A name of one label below `test`.
pub(crate) fn name(label: &str) -> Vec<u8> {
    let length = u8::try_from(label.len()).expect("a label");
    [&[length], label.as_bytes(), b"\x04test\x00"].concat()
}

type Lie = Arc<dyn Fn(&Question) -> Vec<Vec<u8>> + Send + Sync>;

pub(crate) struct Liar {
    pub(crate) address: SocketAddr,
    /// The time of each query.
    asked: Arc<watch::Sender<Vec<Instant>>>,
    tasks: Vec<AbortHandle>,
}

impl Liar {
    /// Answers each query with these packets; over TCP only if it has a port for that.
    pub(crate) async fn start(
        tcp: Option<()>,
        lie: impl Fn(&Question) -> Vec<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let lie: Lie = Arc::new(lie);
        let (socket, listener) = loop {
            let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
            let address = socket.local_addr().expect("an address");
            // The same number may be taken for TCP.
            match TcpListener::bind(address).await {
                Ok(listener) => break (socket, listener),
                Err(_) => continue,
            }
        };
        let address = socket.local_addr().expect("an address");
        let asked = Arc::new(watch::Sender::new(Vec::new()));
        let mut tasks = vec![tokio::spawn(udp(socket, Arc::clone(&lie), Arc::clone(&asked))).abort_handle()];
        if tcp.is_some() {
            tasks.push(tokio::spawn(serve_tcp(listener, lie, Arc::clone(&asked))).abort_handle());
        }
        Self { address, asked, tasks }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.borrow().len()
    }

    /// Waits for this many queries; returns the time of each.
    pub(crate) async fn wait_asked(&self, count: usize) -> Vec<Instant> {
        let mut asked = self.asked.subscribe();
        let waiting = asked.wait_for(|asked| asked.len() >= count);
        let asked = tokio::time::timeout(PATIENCE, waiting).await.expect("questions come");
        asked.expect("the server lives").clone()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

fn note(asked: &watch::Sender<Vec<Instant>>) -> usize {
    asked.send_modify(|asked| asked.push(Instant::now()));
    asked.borrow().len()
}

async fn udp(socket: UdpSocket, lie: Lie, asked: Arc<watch::Sender<Vec<Instant>>>) {
    let mut buffer = [0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        let question = Question::parse(&buffer[..length], note(&asked), false);
        for packet in lie(&question) {
            // Packets that are too large are not sent.
            let _ = socket.send_to(&packet, from).await;
        }
    }
}

async fn serve_tcp(listener: TcpListener, lie: Lie, asked: Arc<watch::Sender<Vec<Instant>>>) {
    while let Ok((mut io, _)) = listener.accept().await {
        let (lie, asked) = (Arc::clone(&lie), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok(length) = io.read_u16().await {
                let mut packet = vec![0; length.into()];
                if io.read_exact(&mut packet).await.is_err() {
                    return;
                }
                let question = Question::parse(&packet, note(&asked), true);
                for packet in lie(&question) {
                    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
                    if io.write_u16(length).await.is_err() || io.write_all(&packet).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}
