//! Servers that write invalid HTTP/2 byte by byte, as a control plane or a backend.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use crate::network::Serve;
use crate::pipe::End;

pub(crate) const HEADERS: u8 = 1;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(crate) const ACK: u8 = 1;

/// The behaviour of a server on each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadPeer {
    /// Accepts and stays silent.
    NoSettings,
    /// Sends SETTINGS and reads nothing: its process is stopped, and its kernel's buffers fill.
    Hung,
    /// Sends SETTINGS and closes the connection.
    CloseAfterSettings,
    /// Sends SETTINGS and GOAWAY, and closes the connection.
    GoAwayAtOnce,
    /// Answers the first request of a connection with a GOAWAY as not processed, and closes.
    GoAwayToRequest,
    /// Closes its own direction after SETTINGS, and keeps reading.
    HalfClose,
    /// Allows no stream.
    ZeroStreams,
    /// Allows streams, but no request body.
    ZeroWindow,
    /// Sends bytes that are not HTTP/2.
    Garbage,
}

impl BadPeer {
    pub(crate) const ALL: [Self; 9] = [
        Self::NoSettings,
        Self::Hung,
        Self::CloseAfterSettings,
        Self::GoAwayAtOnce,
        Self::GoAwayToRequest,
        Self::HalfClose,
        Self::ZeroStreams,
        Self::ZeroWindow,
        Self::Garbage,
    ];

    pub(crate) fn server(self) -> Serve {
        // The script ends when the client closes the connection.
        Arc::new(move |io| Box::pin(async move { drop(self.serve(io).await) }))
    }

    async fn serve(self, mut io: End) -> io::Result<()> {
        let settings: &[u8] = match self {
            Self::NoSettings => return hang(&io).await,
            Self::Garbage => {
                io.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await?;
                return hang(&io).await;
            }
            // MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE.
            Self::ZeroStreams => &[0, 3, 0, 0, 0, 0],
            Self::ZeroWindow => &[0, 4, 0, 0, 0, 0],
            _ => &[],
        };
        io.write_all(&frame(SETTINGS, 0, settings)).await?;
        match self {
            Self::Hung => return hang(&io).await,
            Self::CloseAfterSettings => return Ok(()),
            Self::GoAwayAtOnce => return io.write_all(&go_away()).await,
            Self::HalfClose => io.shutdown().await?,
            _ => {}
        }
        io.read_exact(&mut [0; 24]).await?;
        loop {
            let mut head = [0; 9];
            io.read_exact(&mut head).await?;
            let [a, b, c, kind, flags, ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            io.read_exact(&mut payload).await?;
            match kind {
                HEADERS if self == Self::GoAwayToRequest => return io.write_all(&go_away()).await,
                SETTINGS if flags & ACK == 0 => io.write_all(&frame(SETTINGS, ACK, &[])).await?,
                PING if flags & ACK == 0 => io.write_all(&frame(PING, ACK, &payload)).await?,
                _ => {}
            }
        }
    }
}

/// Stays silent as long as there is a client.
async fn hang(io: &End) -> io::Result<()> {
    let link = io.link();
    while link.is_open() {
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// A frame of the connection.
pub(crate) fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame_of(0, kind, flags, payload)
}

/// A frame of a stream.
pub(crate) fn frame_of(stream: u32, kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Without error; no stream was processed.
fn go_away() -> Vec<u8> {
    frame(GOAWAY, 0, &[0; 8])
}
