//! The inputs and outputs of the load report core.

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use prost::Message as _;

use super::LoadStore;
use crate::StreamId;
use crate::bootstrap::{Bootstrap, ServerConfig};

/// the server may request all clusters instead of listing them. Only load report streams announce this feature.
const SEND_ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";

/// The configuration of a core.
#[derive(Clone, Debug)]
pub struct LrsCoreConfig {
    /// The server's URI, for the log.
    pub server_uri: Arc<str>,
    /// The encoded first request of each stream, which contains only the node.
    pub first_request: Bytes,
    /// The seed of backoff jitter.
    pub seed: u64,
}

impl LrsCoreConfig {
    /// Reports to one server of the bootstrap. A27-48, A27-49: load is reported to ADS servers only.
    #[must_use]
    pub fn new(bootstrap: &Bootstrap, server: &ServerConfig, seed: u64) -> Self {
        let mut node = bootstrap.node();
        node.client_features.push(SEND_ALL_CLUSTERS.to_owned());
        let request = LoadStatsRequest { node: Some(node), cluster_stats: Vec::new() };
        Self { server_uri: server.uri.as_str().into(), first_request: request.encode_to_vec().into(), seed }
    }
}

/// An input of the core.
#[derive(Debug)]
pub enum Input {
    /// Starts to report the load counted in a store. Several stores may belong to one cluster: their loads are added
    /// up.
    Register {
        /// The store.
        store: Arc<LoadStore>,
    },
    /// The store gets no new calls. What it has counted, and the end of calls in flight, is still reported.
    Unregister {
        /// The store.
        store: Arc<LoadStore>,
    },
    /// The load of the store is reported to another server from now on. What this one has not taken is dropped.
    Withdraw {
        /// The store.
        store: Arc<LoadStore>,
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
        /// An encoded LoadStatsResponse, or garbage.
        bytes: Bytes,
    },
    /// The stream ended, or could not be opened.
    StreamDown {
        /// The stream.
        stream: StreamId,
        /// The reason, human-readable: `UNAVAILABLE: connection refused`.
        reason: String,
    },
    /// Time has passed.
    Tick,
}

/// An action for the driver.
#[derive(Debug)]
pub enum Effect {
    /// Open an LRS stream, and a connection if there is none.
    OpenStream {
        /// The id of the stream in later inputs; each attempt has its own.
        stream: StreamId,
    },
    /// Close the stream: there is nothing left to report.
    CloseStream {
        /// The stream.
        stream: StreamId,
    },
    /// Load reports do not use the server any more: close its connection, unless an ADS stream uses it.
    Disconnect,
    /// Send this request. The next `Send` comes only after `Input::SendDone`.
    Send {
        /// The stream.
        stream: StreamId,
        /// An encoded LoadStatsRequest.
        bytes: Bytes,
    },
    /// Read one more message.
    ReadNext {
        /// The stream.
        stream: StreamId,
    },
}
