//! The interface of traces (gRFC A72): what happens to an RPC, as it happens.

use std::sync::Arc;

use http::{Extensions, HeaderMap};
use proxyless_sans_io::values::Code;

/// Traces the RPCs of channels. [`install_tracer`](super::install_tracer) it for all channels, or give it to one with
/// [`XdsChannelBuilder::tracer`](crate::XdsChannelBuilder::tracer). The crate `proxyless-otel` has one for OpenTelemetry.
pub trait Tracer: Send + Sync {
    /// An RPC starts, in the task of its caller; `None` if it is not traced.
    fn call(&self, call: &CallStart<'_>) -> Option<Box<dyn CallTracer>>;
}

/// The start of an RPC.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallStart<'a> {
    /// The target of the channel.
    pub target: &'a str,
    /// The method, `package.Service/Method`.
    pub method: &'a str,
    /// The metadata of the request.
    pub headers: &'a HeaderMap,
    /// The extensions of the request; a parent of its trace may be among them.
    pub extensions: &'a Extensions,
}

/// Traces one RPC.
pub trait CallTracer: Send + Sync {
    /// The RPC had to wait for the configuration of the channel, and has a route now.
    fn name_resolution_delayed(&mut self);

    /// An attempt starts, before its pick.
    fn attempt(&mut self, attempt: AttemptStart) -> Arc<dyn AttemptTracer>;

    /// The RPC has ended, after its last attempt. Called once.
    fn ended(&mut self, code: Code, message: &str);
}

/// The start of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptStart {
    /// The number of attempts before this one, without transparent retries.
    pub previous_attempts: u32,
    /// Whether it is a transparent retry: no server has processed the attempt before.
    pub transparent_retry: bool,
}

/// Traces one attempt. Messages are sent and received at the same time.
pub trait AttemptTracer: Send + Sync {
    /// Adds the metadata by which the server continues the trace.
    fn inject(&self, headers: &mut HeaderMap);

    /// The attempt had to wait for a connection, and has one now.
    fn pick_delayed(&self);

    /// A message is sent.
    fn sent(&self, message: Message);

    /// A message has been received.
    fn received(&self, message: Message);

    /// The attempt has ended. Called once.
    fn ended(&self, code: Code, message: &str);
}

/// A message of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Its number among the messages of the attempt in this direction, from 0.
    pub sequence_number: u64,
    /// The bytes on the wire, without framing and encryption.
    pub size: u64,
    /// Whether the bytes are compressed; their uncompressed size is then unknown to the channel.
    pub compressed: bool,
}
