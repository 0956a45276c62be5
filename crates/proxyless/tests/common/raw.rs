//! An HTTP/2 server that answers each request with frames that a test wrote.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;

/// The response to one request.
pub(crate) enum Reply {
    /// Writes these bytes.
    Frames(Vec<u8>),
    /// Writes these bytes, then closes the connection.
    Close(Vec<u8>),
}

/// A complete request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// Its index over all connections.
    pub(crate) number: usize,
    pub(crate) stream: u32,
    /// The bytes of its DATA frames.
    pub(crate) size: usize,
}

pub(crate) struct RawServer {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RawServer {
    pub(crate) async fn start(reply: impl Fn(Received) -> Reply + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let received = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Script { reply: Box::new(reply), received: Arc::clone(&received) });
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let script = Arc::clone(&script);
                // The client may close the connection.
                connections.spawn(async move { drop(script.serve(socket).await) });
            }
        });
        Ok(Self { address, received, task })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Script {
    reply: Box<dyn Fn(Received) -> Reply + Send + Sync>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Script {
    async fn serve(&self, mut socket: TcpStream) -> io::Result<()> {
        // SETTINGS with INITIAL_WINDOW_SIZE, and the same for the connection: requests of any size arrive at once.
        let window = (1u32 << 30).to_be_bytes();
        socket.write_all(&frame(4, 0, 0, &[&[0, 4], &window[..]].concat())).await?;
        socket.write_all(&frame(8, 0, 0, &window)).await?;
        let mut preface = [0; 24];
        socket.read_exact(&mut preface).await?;
        let mut sizes = std::collections::BTreeMap::new();
        loop {
            let mut head = [0; 9];
            socket.read_exact(&mut head).await?;
            let [a, b, c, kind, flags, stream @ ..] = head;
            let stream = u32::from_be_bytes(stream);
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            socket.read_exact(&mut payload).await?;
            let size = sizes.entry(stream).or_insert(0);
            match kind {
                0 => *size += payload.len(),
                1 => {}
                _ => continue,
            }
            if flags & END_STREAM == 0 {
                continue;
            }
            let request = {
                let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
                let request = Received { number: received.len(), stream, size: *size };
                received.push(request);
                request
            };
            match (self.reply)(request) {
                Reply::Frames(frames) => socket.write_all(&frames).await?,
                Reply::Close(frames) => {
                    socket.write_all(&frames).await?;
                    return socket.shutdown().await;
                }
            }
        }
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub(crate) fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(1, flags | END_HEADERS, stream, &header_block(fields))
}

/// Literal fields without indexing, valid or not.
pub(crate) fn header_block<T: AsRef<[u8]>>(fields: &[(T, T)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            push_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// RFC 7541, section 5.1, with a prefix of 7 bits.
fn push_length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        return block.push(u8::try_from(length).expect("less than 127"));
    };
    block.push(127);
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).expect("less than 128") | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("less than 128"));
}

pub(crate) fn data(stream: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    frame(0, flags, stream, data)
}

pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(3, 0, stream, &code.to_be_bytes())
}

/// GOAWAY without error: streams with a higher id were not processed.
pub(crate) fn go_away(last_stream: u32) -> Vec<u8> {
    frame(7, 0, 0, &[last_stream.to_be_bytes(), [0; 4]].concat())
}

/// The headers of a gRPC response that continues.
pub(crate) fn grpc_headers(stream: u32) -> Vec<u8> {
    headers(stream, 0, &[(":status", "200"), ("content-type", "application/grpc")])
}

/// A successful response with one empty message.
pub(crate) fn success(stream: u32) -> Reply {
    let trailers = headers(stream, END_STREAM, &[("grpc-status", "0")]);
    Reply::Frames([grpc_headers(stream), data(stream, 0, &[0; 5]), trailers].concat())
}

/// A response of a proxy that is not gRPC.
pub(crate) fn http_error(stream: u32, status: &str, body: &str) -> Reply {
    let fields = [(":status", status), ("content-type", "text/html")];
    Reply::Frames(match body {
        "" => headers(stream, END_STREAM, &fields[..1]),
        body => [headers(stream, 0, &fields), data(stream, END_STREAM, body.as_bytes())].concat(),
    })
}
