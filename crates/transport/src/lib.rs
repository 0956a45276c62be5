//! HTTP/2 client connections for gRPC, on h2.
//!
//! h2 implements the protocol, in one task per connection; requests and responses pass in the caller's own task. This
//! crate adds what a gRPC channel needs and h2 does not expose:
//!
//! - a connection is READY when the server's SETTINGS have arrived, not before;
//! - a GOAWAY is seen at once, even while other streams are open;
//! - callers wait in order for the server's limit of concurrent streams;
//! - every failed request says whether it is safe to retry, and why the connection was lost.
//!
//! In: an [`Address`], [`ConnectOptions`], optionally one's own [`Connector`]. Out: a [`Connection`], whose end is an
//! event ([`Connection::left_open`], [`Connection::closed`]). [`Tunnel`] is a connector that goes through a proxy. [`grpc`] holds the little of gRPC that raw-bytes streams
//! need; [`dns`] finds the addresses of host names; [`panics`] contains panics in the task
//! that causes them.
//!
//! This crate is an implementation detail of [proxyless](https://docs.rs/proxyless): it promises no semver stability.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub use address::Address;
pub use body::{Body, BodyError};
pub use connect::{ConnectError, Opening, Stage, connect, open};
pub use connection::{Connection, ReservedStream};
pub use connector::{BoxedIo, Connecting, Connector, Io, TcpConnector};
pub use disconnect::Disconnect;
pub use error::SendError;
pub use go_away::GoAway;
pub use happy_eyeballs::connect_any;
pub use line::StreamQueue;
pub use options::ConnectOptions;
pub use state::Lost;
pub use tunnel::Tunnel;

pub mod dns;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod grpc;
pub mod panics;

mod address;
mod body;
mod connect;
mod connection;
mod connection_task;
mod connector;
mod disconnect;
mod error;
mod frame;
mod frame_parser;
mod frame_tap;
mod go_away;
mod happy_eyeballs;
mod interim;
mod keepalive;
mod line;
mod options;
mod quota;
mod receive_window;
mod sent_frames;
mod state;
mod stream_permit;
mod sync;
mod targets;
mod tunnel;
mod upload;
