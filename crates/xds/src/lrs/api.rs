//! What goes into the load report core, and what comes out.

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use prost::Message as _;

use super::LoadStore;
use crate::bootstrap::Bootstrap;

/// says that the server may ask for all clusters instead of naming them. Only load report streams say so.
const SEND_ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";

/// How a core is set up.
#[derive(Clone, Debug)]
pub struct LrsCoreConfig {
    /// The server's URI, for the log.
    pub server_uri: Arc<str>,
    /// The encoded first request of each stream: the node and nothing else.
    pub first_request: Bytes,
    /// The seed of backoff jitter.
    pub seed: u64,
}

impl LrsCoreConfig {
    /// What the bootstrap says of its first server. A27-48, A27-49: load goes to the ADS server, and to no other.
    #[must_use]
    pub fn new(bootstrap: &Bootstrap, seed: u64) -> Self {
        let mut node = bootstrap.node();
        node.client_features.push(SEND_ALL_CLUSTERS.to_owned());
        let request = LoadStatsRequest { node: Some(node), cluster_stats: Vec::new() };
        Self {
            server_uri: bootstrap.server().uri.as_str().into(),
            first_request: request.encode_to_vec().into(),
            seed,
        }
    }
}

/// What happens to a core.
#[derive(Debug)]
pub enum Input {
    /// The load that this store counts is to be reported. Several stores may be of one cluster: they are added up.
    Register {
        /// The store.
        store: Arc<LoadStore>,
    },
    /// Nothing new will start in this store. What it has counted, and the end of the calls that it still counts, is
    /// reported all the same.
    Unregister {
        /// The store.
        store: Arc<LoadStore>,
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
        /// An encoded LoadStatsResponse, or garbage.
        bytes: Bytes,
    },
    /// The stream ended, or could not be opened.
    StreamDown {
        /// The stream.
        stream: u64,
        /// Why, for people: `UNAVAILABLE: connection refused`.
        reason: String,
    },
    /// Nothing but the passing of time.
    Tick,
}

/// What a core wants done.
#[derive(Debug)]
pub enum Effect {
    /// Open an LRS stream (and a connection, if there is none).
    OpenStream {
        /// Its number, for the inputs about it; each attempt has its own.
        stream: u64,
    },
    /// End the stream: there is nothing left to report.
    CloseStream {
        /// Which one.
        stream: u64,
    },
    /// Send this request. The next `Send` comes only after `Input::SendDone`.
    Send {
        /// The stream.
        stream: u64,
        /// An encoded LoadStatsRequest.
        bytes: Bytes,
    },
    /// Read one more message.
    ReadNext {
        /// The stream.
        stream: u64,
    },
}
