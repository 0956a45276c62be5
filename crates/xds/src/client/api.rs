//! What goes into the xDS client core, and what comes out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use prost::Message as _;

use crate::bootstrap::Bootstrap;
use crate::resource::{Resource, ResourceType};
use crate::{Gates, Limits};

/// Names a watch; chosen by the watcher, unique among the watches of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// What becomes of the good resources in a response that also has bad ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NackMode {
    /// gRFC A46: good ones are used, bad ones are not; the response is NACKed.
    #[default]
    PerResource,
    /// gRFC A40's table, literally: nothing of a response with a bad resource is used.
    WholeResponse,
}

/// How a core is set up. The server and node come from the bootstrap.
#[derive(Clone, Debug)]
pub struct XdsCoreConfig {
    /// The server's URI, for error messages.
    pub server_uri: Arc<str>,
    /// The server's feature `ignore_resource_deletion` (gRFC A53).
    pub ignore_resource_deletion: bool,
    /// The server's feature `fail_on_data_errors` (gRFC A88).
    pub fail_on_data_errors: bool,
    /// The server's feature `resource_timer_is_transient_error` (gRFC A88).
    pub resource_timer_is_transient_error: bool,
    /// The server's feature `trusted_xds_server` (gRFC A81).
    pub trusted_xds_server: bool,
    /// The encoded `envoy.config.core.v3.Node`, sent in the first request of each stream.
    pub node: Bytes,
    /// The node's id, for error messages.
    pub node_id: Arc<str>,
    /// What becomes of good resources beside bad ones.
    pub nack_mode: NackMode,
    /// Gated behaviour.
    pub gates: Gates,
    /// How much of what the server sends is accepted.
    pub limits: Limits,
    /// How long a resource may take to come before it is said not to exist (gRFC A57): 15 s, or 30 s where the timer
    /// is a transient error (gRFC A88).
    pub resource_timeout: Duration,
    /// The seed of backoff jitter.
    pub seed: u64,
}

impl XdsCoreConfig {
    /// What the bootstrap says of its first server; everything else as the gRFCs have it.
    #[must_use]
    pub fn new(bootstrap: &Bootstrap, gates: Gates, seed: u64) -> Self {
        let server = bootstrap.server();
        let slow_timer = gates.data_error_handling && server.features.resource_timer_is_transient_error;
        Self {
            server_uri: server.uri.as_str().into(),
            ignore_resource_deletion: server.features.ignore_resource_deletion,
            fail_on_data_errors: server.features.fail_on_data_errors,
            resource_timer_is_transient_error: server.features.resource_timer_is_transient_error,
            trusted_xds_server: server.features.trusted_xds_server,
            node: bootstrap.node().encode_to_vec().into(),
            node_id: bootstrap.node_id().into(),
            nack_mode: NackMode::default(),
            gates,
            limits: Limits::default(),
            resource_timeout: Duration::from_secs(if slow_timer { 30 } else { 15 }),
            seed,
        }
    }
}

/// What happens to a core.
#[derive(Debug)]
pub enum Input {
    /// Someone wants to know of a resource. Cached state is told at once, in order.
    Watch {
        /// The watch.
        id: WatchId,
        /// The resource's type.
        resource_type: ResourceType,
        /// The resource's name.
        name: Arc<str>,
    },
    /// A watch ends.
    Unwatch {
        /// The watch.
        id: WatchId,
    },
    /// The stream that `Effect::OpenStream` asked for can send now: the connection is READY and the call has begun.
    StreamUp {
        /// Which one.
        stream: u64,
    },
    /// The request that `Effect::Send` gave was pulled by the HTTP/2 stream; the next may follow.
    SendDone {
        /// The stream.
        stream: u64,
    },
    /// A message came on the stream.
    Message {
        /// The stream.
        stream: u64,
        /// An encoded DiscoveryResponse, or garbage.
        bytes: Bytes,
    },
    /// The stream ended, or could not be opened.
    StreamDown {
        /// The stream.
        stream: u64,
        /// The status code that the server ended it with, if it did.
        code: Option<i32>,
        /// Why, for people: `UNAVAILABLE: connection refused`.
        reason: String,
    },
    /// One watcher is done with an event that carried this token.
    TokenReleased {
        /// The token's number.
        token: u64,
    },
    /// Nothing but the passing of time.
    Tick,
}

/// What a core wants done.
#[derive(Debug)]
pub enum Effect {
    /// Open an ADS stream (and a connection, if there is none).
    OpenStream {
        /// Its number, for the inputs about it; each attempt has its own.
        stream: u64,
    },
    /// End the stream: nobody watches anything any more.
    CloseStream {
        /// Which one.
        stream: u64,
    },
    /// Send this request. The next `Send` comes only after `Input::SendDone`.
    Send {
        /// The stream.
        stream: u64,
        /// An encoded DiscoveryRequest.
        bytes: Bytes,
    },
    /// Read one more message: the last one has been consumed by its watchers.
    ReadNext {
        /// The stream.
        stream: u64,
    },
    /// Tell a watcher.
    Notify {
        /// The watch.
        watch: WatchId,
        /// What happened.
        event: WatchEvent,
        /// Flow control: the driver answers with one `Input::TokenReleased` of this number when the watcher has acted on
        /// the event (its follow-up watches included). The next message is read when every event of a response is
        /// answered. `None` for events that no response caused.
        token: Option<u64>,
    },
}

/// What a watcher is told.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// The resource is this from now on, or (`Err`) must not be used any more.
    Changed(Result<Resource, Arc<ResourceError>>),
    /// Something is wrong, but what was told before stays in use. `None`: it is fine again.
    Ambient(Option<Arc<ResourceError>>),
}

/// Why a resource is not there, or not up to date.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {name}: {kind} (server {server}, node {node})", resource_type.name())]
pub struct ResourceError {
    /// Its type.
    pub resource_type: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// The server that was asked.
    pub server: Arc<str>,
    /// The node's id, by which the server's operator finds this client.
    pub node: Arc<str>,
    /// What happened.
    pub kind: ResourceErrorKind,
}

/// The ways in which a resource can fail to be there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceErrorKind {
    /// The server did not send it in time, or deleted it.
    #[error("does not exist: {0}")]
    DoesNotExist(String),
    /// What the server sent is invalid (NACKed).
    #[error("rejected version {version:?}: {why}")]
    Invalid {
        /// The version of the rejected response; the beginning of a very long one.
        version: Arc<str>,
        /// The violations; of very many only the first ones.
        why: Arc<str>,
    },
    /// The server did not send it in time, which with this server means that it is slow (gRFC A88).
    #[error("no answer in time: {0}")]
    Timeout(String),
    /// The server says that it cannot send it (gRFC A88, xRFC TP3).
    #[error("the management server reports status {code}: {message}")]
    Reported {
        /// The gRPC status code; never to be passed on to an RPC.
        code: i32,
        /// The server's words.
        message: String,
    },
    /// The server cannot be reached, or its stream failed.
    #[error("management server unreachable: {0}")]
    Transient(String),
    /// The server was reached, and does not speak ADS.
    #[error("the management server has no ADS service (is it the right port?): {0}")]
    NoAdsService(String),
}

impl ResourceErrorKind {
    /// Whether it says something about the server only, and nothing about the resource.
    #[must_use]
    pub fn is_about_server(&self) -> bool {
        matches!(self, Self::Transient(_) | Self::NoAdsService(_))
    }
}
