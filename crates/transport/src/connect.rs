//! Opening a connection.

use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http::{Request, Response};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use crate::Address;
use crate::body::Body;
use crate::connection::Connection;
use crate::connector::Connector;
use crate::error::SendError;
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
    open(connector, address, options).await?.settled().await
}

/// Opens a byte stream and starts HTTP/2 on it, for requests that need not wait until the connection is READY: HTTP/2 lets a
/// client send them right behind its preface (RFC 9113, section 3.4), which saves a round trip.
///
/// # Errors
/// If the byte stream cannot be opened.
pub async fn open<B>(
    connector: &dyn Connector,
    address: &Address,
    options: &ConnectOptions,
) -> Result<Opening<B>, ConnectError>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    let (after, deadline) = (options.connect_timeout, Instant::now() + options.connect_timeout);
    let late = |stage| ConnectError::Timeout { address: address.clone(), stage, after };
    let io = timeout_at(deadline, connector.connect(address))
        .await
        .map_err(|_| late(Stage::Connect))?
        .map_err(|source| ConnectError::Io { address: address.clone(), source })?;
    let failed =
        |error: h2::Error| ConnectError::Http2 { address: address.clone(), reason: error.to_string() };
    let started = timeout_at(deadline, Connection::start(io, options)).await;
    let connection = started.map_err(|_| late(Stage::Settings))?.map_err(failed)?;
    Ok(Opening { connection, address: address.clone(), after, deadline })
}

/// A connection whose server has not sent its SETTINGS yet. Dropping it aborts the connection.
pub struct Opening<B> {
    connection: Connection<B>,
    address: Address,
    /// The connect timeout.
    after: Duration,
    deadline: Instant,
}

impl<B> Opening<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    /// Sends a request behind the preface. Returns the head of the response.
    ///
    /// # Errors
    /// As [`Connection::send`]. If the attempt fails, [`Self::settled`] has the reason.
    pub fn send(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Body>, SendError<B>>> + Send + use<B> {
        self.connection.send(request)
    }

    /// The address of the server.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Waits for the server's SETTINGS.
    ///
    /// # Errors
    /// If the byte stream does not carry HTTP/2, or the attempt times out.
    pub async fn settled(self) -> Result<Connection<B>, ConnectError> {
        let Self { connection, address, after, deadline } = self;
        match timeout_at(deadline, connection.ready()).await {
            Ok(Ok(())) => {
                connection.join_line();
                Ok(connection)
            }
            Ok(Err(reason)) => Err(ConnectError::Http2 { address, reason }),
            Err(_) => Err(ConnectError::Timeout { address, stage: Stage::Settings, after }),
        }
    }
}
