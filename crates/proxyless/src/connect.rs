//! Byte streams to backends: [`Connector`], the trait behind
//! [`XdsChannelBuilder::connector`](crate::XdsChannelBuilder::connector), and plain TCP.
//!
//! A connector turns an [`Address`] into a byte stream; HTTP/2 runs on top of it. TLS of clusters (gRFC A29) is added
//! above the connector. For an endpoint with a proxy (gRFC A86) the connector opens the byte stream to the proxy; the
//! HTTP CONNECT exchange, and TLS inside the tunnel, are added above it. This one counts its attempts:
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! use proxyless::XdsChannel;
//! use proxyless::connect::{Address, Connecting, Connector, TcpConnector};
//!
//! struct Counting(TcpConnector, Arc<AtomicUsize>);
//!
//! impl Connector for Counting {
//!     fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
//!         self.1.fetch_add(1, Ordering::Relaxed);
//!         self.0.connect(address)
//!     }
//! }
//!
//! # fn example() -> Result<(), proxyless::BuildError> {
//! let attempts = Arc::new(AtomicUsize::new(0));
//! let connector = Counting(TcpConnector::default(), Arc::clone(&attempts));
//! let channel = XdsChannel::builder("xds:///greeter.example").connector(connector).build()?;
//! # Ok(())
//! # }
//! ```

pub use proxyless_transport::{Address, BoxedIo, Connecting, Connector, Io, TcpConnector};
