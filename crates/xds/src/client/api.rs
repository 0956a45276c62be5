//! The inputs and outputs of the xDS client core.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};

use proxyless_sans_io::values::Code;

use super::ids::{ReadToken, ServerId, WatchKey, WatcherId};
use crate::bootstrap::{Bootstrap, ServerConfig, ServerFeatures, ServerLists};
use crate::resource::{CustomPolicies, Resource, ResourceType};
use crate::{Gates, Limits, StreamId};

/// The treatment of valid resources in a response that also contains invalid ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NackMode {
    /// gRFC A46: valid resources are used, invalid ones are not; the response is NACKed.
    #[default]
    PerResource,
    /// gRFC A40's table, literally: nothing in a response with an invalid resource is used.
    WholeResponse,
}

/// A management server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsServer {
    /// The URI, for error messages.
    pub uri: Arc<str>,
    /// The features.
    pub features: ServerFeatures,
}

/// The configuration of a core. Servers and node come from the bootstrap.
#[derive(Clone, Debug)]
pub struct XdsCoreConfig {
    /// All distinct servers; a [`ServerId`] is an index.
    pub servers: Vec<XdsServer>,
    /// The servers of names without an authority, by priority (gRFC A71).
    pub default_servers: Vec<ServerId>,
    /// The servers of each authority, by priority (gRFC A47).
    pub authorities: BTreeMap<String, Vec<ServerId>>,
    /// The encoded `envoy.config.core.v3.Node`, sent in the first request of each stream.
    pub node: Bytes,
    /// The node's id, for error messages.
    pub node_id: Arc<str>,
    /// The treatment of valid resources beside invalid ones.
    pub nack_mode: NackMode,
    /// Feature gates.
    pub gates: Gates,
    /// Limits on the size of responses.
    pub limits: Limits,
    /// The certificate provider instances that Clusters may refer to; `None`, the default, if the client cannot use TLS
    /// (see [`DecodeContext::certificate_providers`](crate::resource::DecodeContext)).
    pub certificate_providers: Option<Arc<BTreeSet<String>>>,
    /// The load balancing policies of the application (gRFC A52); `None`, the default, if it has none.
    pub policies: Option<Arc<dyn CustomPolicies>>,
    /// The time after which a requested resource is considered nonexistent (gRFC A57). `None`: 15 s, or 30 s for a
    /// server whose timer is a transient error (gRFC A88).
    pub resource_timeout: Option<Duration>,
    /// The seed of backoff jitter.
    pub seed: u64,
}

impl XdsCoreConfig {
    /// Takes servers, authorities and node of the bootstrap; everything else has the default of the gRFCs.
    #[must_use]
    pub fn new(bootstrap: &Bootstrap, gates: Gates, seed: u64) -> Self {
        let ServerLists { servers, default, authorities } = bootstrap.server_lists();
        let ids = |list: Vec<usize>| list.into_iter().map(ServerId).collect();
        let server = |server: ServerConfig| XdsServer { uri: server.uri.into(), features: server.features };
        Self {
            servers: servers.into_iter().map(server).collect(),
            default_servers: ids(default),
            authorities: authorities.into_iter().map(|(name, list)| (name, ids(list))).collect(),
            node: bootstrap.encoded_node(),
            node_id: bootstrap.node_id().into(),
            nack_mode: NackMode::default(),
            gates,
            limits: Limits::default(),
            certificate_providers: None,
            policies: None,
            resource_timeout: None,
            seed,
        }
    }
}

/// An input of the core.
#[derive(Debug)]
pub enum Input {
    /// Starts a watch. Cached state is delivered at once, in order.
    Watch {
        /// The new watch.
        watch: WatchKey,
        /// The resource's type.
        resource_type: ResourceType,
        /// The resource's name.
        name: Arc<str>,
    },
    /// Ends a watch.
    Unwatch {
        /// The watch.
        watch: WatchKey,
    },
    /// Ends all watches of a watcher.
    Leave {
        /// The watcher.
        watcher: WatcherId,
    },
    /// The stream that `Effect::OpenStream` asked for can send now: the connection is READY and the call has begun.
    StreamUp {
        /// The stream.
        stream: StreamId,
    },
    /// The HTTP/2 stream has taken the request of `Effect::Send`; the next one may follow.
    SendDone {
        /// The stream.
        stream: StreamId,
    },
    /// A message was received on the stream.
    Message {
        /// The stream.
        stream: StreamId,
        /// An encoded DiscoveryResponse, or garbage.
        bytes: Bytes,
    },
    /// The stream ended, or could not be opened.
    StreamDown {
        /// The stream.
        stream: StreamId,
        /// The status code sent by the server, if any.
        code: Option<Code>,
        /// The reason, human-readable: `UNAVAILABLE: connection refused`.
        reason: String,
    },
    /// A watcher has handled the event that carried this token.
    TokenReleased {
        /// The token.
        token: ReadToken,
    },
    /// Time has passed.
    Tick,
}

/// An encoded DiscoveryRequest, in two parts.
#[derive(Clone, Debug)]
pub struct EncodedRequest {
    /// All fields but the names.
    pub head: Bytes,
    /// The names of the resources. Requests with the same names share this part, which may have megabytes.
    pub names: Bytes,
}

impl EncodedRequest {
    /// The whole message.
    #[must_use]
    pub fn into_buf(self) -> impl Buf {
        self.head.chain(self.names)
    }
}

/// An action for the driver.
#[derive(Debug)]
pub enum Effect {
    /// Open an ADS stream, and a connection if there is none.
    OpenStream {
        /// The id of the stream in later inputs; each attempt has its own.
        stream: StreamId,
        /// The server. There is at most one stream to each.
        server: ServerId,
    },
    /// Close the stream: no watch needs its server any more.
    CloseStream {
        /// The stream.
        stream: StreamId,
    },
    /// A71-14: no watch needs the server any more: close its connection, unless load reports use it.
    Disconnect {
        /// The server. It has no stream.
        server: ServerId,
    },
    /// Send this request. The next `Send` comes only after `Input::SendDone`.
    Send {
        /// The stream.
        stream: StreamId,
        /// The request.
        request: EncodedRequest,
    },
    /// Read one more message: the previous one is not waited for any longer.
    ReadNext {
        /// The stream.
        stream: StreamId,
    },
    /// Deliver an event to a watcher.
    Notify {
        /// The watch.
        watch: WatchKey,
        /// The event.
        event: WatchEvent,
        /// Flow control: the driver sends one `Input::TokenReleased` with it when the watcher has handled the event,
        /// including its follow-up watches. The next message is read when all events of a response are released, or
        /// their watchers have taken too long.
        token: ReadToken,
    },
    /// The server of some Clusters has changed: look up [`XdsCore::load_server`](super::XdsCore::load_server) again for
    /// every store.
    MoveLoad,
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// The resource has this value from now on, or (`Err`) must no longer be used.
    Changed(Result<Resource, Arc<ResourceError>>),
    /// An error that leaves the last value in use. `None`: the error has been resolved.
    Ambient(Option<Arc<ResourceError>>),
}

/// The reason why a resource is missing or out of date.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {name}: {kind} (server {server}, node {node})", resource_type.name())]
pub struct ResourceError {
    /// The resource's type.
    pub resource_type: ResourceType,
    /// The resource's name.
    pub name: Arc<str>,
    /// The server that it was requested from.
    pub server: Arc<str>,
    /// The node id, by which the server's operator identifies this client.
    pub node: Arc<str>,
    /// The error.
    pub kind: ResourceErrorKind,
}

/// The kinds of resource errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceErrorKind {
    /// The server did not send it in time, or deleted it.
    #[error("does not exist: {0}")]
    DoesNotExist(String),
    /// The server sent an invalid resource, which was NACKed.
    #[error("rejected version {version:?}: {why}")]
    Invalid {
        /// The version of the rejected response, truncated if very long.
        version: Arc<str>,
        /// The violations, truncated if there are very many.
        why: Arc<str>,
    },
    /// The server did not send it in time, which with this server indicates slowness (gRFC A88).
    #[error("no answer in time: {0}")]
    Timeout(String),
    /// The server reported that it cannot send it (gRFC A88, xRFC TP3).
    #[error("the management server reports status {code}: {message}")]
    Reported {
        /// The gRPC status code; never propagated to an RPC.
        code: Code,
        /// The server's message.
        message: String,
    },
    /// The name is invalid, or the bootstrap does not have its authority (gRFC A47).
    #[error("invalid name: {0}")]
    Name(String),
    /// The server cannot be reached, or its stream failed.
    #[error("management server unreachable: {0}")]
    Transient(String),
    /// The server is reachable, but does not implement ADS.
    #[error("the management server has no ADS service (is it the right port?): {0}")]
    NoAdsService(String),
}

impl ResourceErrorKind {
    /// Whether the error concerns the server rather than the resource.
    #[must_use]
    pub fn is_about_server(&self) -> bool {
        matches!(self, Self::Transient(_) | Self::NoAdsService(_))
    }
}
