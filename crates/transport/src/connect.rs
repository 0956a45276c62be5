//! Opening a connection.

use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use thiserror::Error;
use tokio::time::{Instant, timeout};

use crate::Address;
use crate::connection::Connection;
use crate::connector::Connector;
use crate::options::ConnectOptions;

/// A connection attempt failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The byte stream could not be opened.
    #[error("{address}: {}", self.reason())]
    Io {
        /// The address of the server.
        address: Address,
        /// The connector's error.
        source: io::Error,
    },
    /// The byte stream was opened, but does not carry HTTP/2.
    #[error("{address}: {}", self.reason())]
    Http2 {
        /// The address of the server.
        address: Address,
        /// The reason.
        reason: String,
    },
    /// The attempt timed out.
    #[error("{address}: {}", self.reason())]
    Timeout {
        /// The address of the server.
        address: Address,
        /// The stage reached.
        stage: Stage,
        /// The connect timeout.
        after: Duration,
    },
}

impl ConnectError {
    /// A description of the error, without the address.
    pub fn reason(&self) -> String {
        match self {
            Self::Io { source, .. } => source.to_string(),
            Self::Http2 { reason, .. } => format!("HTTP/2 handshake failed: {reason}"),
            Self::Timeout { stage, after, .. } => format!("{stage} within {after:?}"),
        }
    }

    /// Whether the process or the system has no file descriptor left for the connection.
    pub fn is_out_of_descriptors(&self) -> bool {
        /// EMFILE and ENFILE, which have the same numbers on all Unix systems, and WSAEMFILE.
        const CODES: [i32; 3] = [24, 23, 10_024];
        matches!(self, Self::Io { source, .. } if source.raw_os_error().is_some_and(|code| CODES.contains(&code)))
    }
}

/// The stages of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Opening the byte stream.
    Connect,
    /// Waiting for the server's SETTINGS.
    Settings,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "no connection",
            Self::Settings => "connected, but no HTTP/2 SETTINGS from the server",
        })
    }
}

/// Connects on the byte stream that `connector` opens. Returns when the server's SETTINGS have arrived, which is when gRPC
/// considers the connection READY. Dropping the future cancels the attempt.
///
/// # Errors
/// If the byte stream cannot be opened, it does not carry HTTP/2, or the attempt times out.
pub async fn connect<B>(
    connector: &dyn Connector,
    address: &Address,
    options: &ConnectOptions,
) -> Result<Connection<B>, ConnectError>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    let start = Instant::now();
    let late =
        |stage| ConnectError::Timeout { address: address.clone(), stage, after: options.connect_timeout };
    let failed = |reason| ConnectError::Http2 { address: address.clone(), reason };

    let io = timeout(options.connect_timeout, connector.connect(address))
        .await
        .map_err(|_| late(Stage::Connect))?
        .map_err(|source| ConnectError::Io { address: address.clone(), source })?;

    let handshake = async {
        let connection = Connection::start(io, options).await.map_err(|error| failed(error.to_string()))?;
        let attempt = AbortOnDrop(&connection);
        attempt.0.ready().await.map_err(failed)?;
        attempt.0.join_line();
        // It only borrows, so nothing leaks.
        std::mem::forget(attempt);
        Ok(connection)
    };
    let left = options.connect_timeout.saturating_sub(start.elapsed());
    timeout(left, handshake).await.map_err(|_| late(Stage::Settings))?
}

/// Aborts an attempt that fails or is dropped: without SETTINGS there is nothing to close gracefully.
struct AbortOnDrop<'a, B>(&'a Connection<B>);

impl<B> Drop for AbortOnDrop<'_, B> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
