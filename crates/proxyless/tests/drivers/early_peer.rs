//! A backend that writes HTTP/2 byte by byte and answers large requests before reading them, as servers with a size
//! limit do. h2's server would reset such a stream, which frees its slot in the client.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use proxyless_testkit::echo::EchoResponse;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bad_peer::{ACK, HEADERS, PING, SETTINGS, frame, frame_of};
use crate::grpc::framed;
use crate::network::Serve;
use crate::pipe::End;

const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The number of streams that it allows. Further ones get no response.
pub(crate) const STREAMS: usize = 10;
/// The window of each stream. It is never extended, nor is that of the connection, which is 64 times as large.
const WINDOW: u16 = 1 << 10;
/// PERMISSION_DENIED, the status of large requests.
const DENIED: u8 = b'7';
const OK: u8 = b'0';

pub(crate) fn server() -> Serve {
    // The script ends when the client closes the connection.
    Arc::new(|io| Box::pin(async move { drop(serve(io).await) }))
}

async fn serve(mut io: End) -> io::Result<()> {
    let limit = [&[0, 3, 0, 0, 0, STREAMS as u8][..], &[0, 4, 0, 0], &WINDOW.to_be_bytes()].concat();
    io.write_all(&frame(SETTINGS, 0, &limit)).await?;
    io.read_exact(&mut [0; 24]).await?;
    // Streams that count against the limit: the client has neither ended nor cancelled them.
    let mut open = BTreeSet::new();
    // The first bytes of requests to be answered.
    let mut unanswered: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    loop {
        let mut head = [0; 9];
        io.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let stream = u32::from_be_bytes(stream);
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        io.read_exact(&mut payload).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => io.write_all(&frame(SETTINGS, ACK, &[])).await?,
            PING if flags & ACK == 0 => io.write_all(&frame(PING, ACK, &payload)).await?,
            HEADERS => {
                open.insert(stream);
                if open.len() <= STREAMS {
                    unanswered.insert(stream, Vec::new());
                }
            }
            RST_STREAM => {
                open.remove(&stream);
                unanswered.remove(&stream);
            }
            DATA => {
                let ended = flags & END_STREAM != 0;
                if ended {
                    open.remove(&stream);
                }
                let Some(read) = unanswered.get_mut(&stream) else { continue };
                read.extend(payload);
                // The prefix of a gRPC message has its length.
                let large = read
                    .first_chunk()
                    .is_some_and(|[_, a, b, c, d]| u32::from_be_bytes([*a, *b, *c, *d]) > u32::from(WINDOW));
                if large || ended {
                    unanswered.remove(&stream);
                    io.write_all(&answer(stream, if large { DENIED } else { OK })).await?;
                }
            }
            _ => {}
        }
    }
}

/// A complete response.
fn answer(stream: u32, status: u8) -> Vec<u8> {
    // `:status: 200` is in HPACK's table, as is the name `content-type`.
    let head = [&[0x88, 0x0f, 0x10, 16][..], b"application/grpc"].concat();
    let status = [&[0, 11][..], b"grpc-status", &[1, status]].concat();
    if status.last() != Some(&OK) {
        return frame_of(stream, HEADERS, END_HEADERS | END_STREAM, &[head, status].concat());
    }
    let message = framed(&EchoResponse { message: String::new(), backend: "early".into() });
    let frames = [
        frame_of(stream, HEADERS, END_HEADERS, &head),
        frame_of(stream, DATA, 0, &message),
        frame_of(stream, HEADERS, END_HEADERS | END_STREAM, &status),
    ];
    frames.concat()
}
