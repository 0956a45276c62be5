//! The client's state of one management server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{Backoff, BackoffConfig, Repeats, Time};

use super::ads_stream::AdsStream;
use super::api::{ResourceErrorKind, XdsCoreConfig, XdsServer};
use super::core::Rejection;
use crate::bootstrap::ServerFeatures;
use crate::resource::ResourceType;

/// A management server. It has at most one stream, whatever the number of authorities that use it (A47-08).
#[derive(Debug)]
pub(super) struct Server {
    pub(super) uri: Arc<str>,
    pub(super) features: ServerFeatures,
    /// The time after which a requested resource is considered nonexistent.
    pub(super) resource_timeout: Duration,
    pub(super) stream: Option<AdsStream>,
    pub(super) retry_at: Option<Time>,
    pub(super) backoff: Backoff,
    /// The reason why the server is unreachable, from a stream's failure until the next response.
    pub(super) unreachable: Option<ResourceErrorKind>,
    pub(super) last_stream_error: Option<(Time, String)>,
    /// The last accepted version of each type. Unlike nonces it outlives the stream.
    pub(super) versions: BTreeMap<ResourceType, Arc<str>>,
    /// The violations in the latest response of each type, if it was rejected.
    pub(super) rejections: BTreeMap<ResourceType, Rejection>,
    pub(super) log: ServerLog,
}

/// The lines about a server that may repeat.
#[derive(Debug, Default)]
pub(super) struct ServerLog {
    pub(super) unreachable: Repeats,
    pub(super) ended: Repeats,
    pub(super) rejected: BTreeMap<ResourceType, Repeats>,
}

impl Server {
    pub(super) fn new(server: &XdsServer, config: &XdsCoreConfig) -> Self {
        let slow_timer =
            config.gates.data_error_handling && server.features.resource_timer_is_transient_error;
        let default_timeout = Duration::from_secs(if slow_timer { 30 } else { 15 });
        Self {
            uri: Arc::clone(&server.uri),
            features: server.features,
            resource_timeout: config.resource_timeout.unwrap_or(default_timeout),
            stream: None,
            retry_at: None,
            backoff: Backoff::new(BackoffConfig::default()),
            unreachable: None,
            last_stream_error: None,
            versions: BTreeMap::new(),
            rejections: BTreeMap::new(),
            log: ServerLog::default(),
        }
    }

    /// Whether a stream exists or will be opened.
    pub(super) fn is_in_use(&self) -> bool {
        self.stream.is_some() || self.retry_at.is_some()
    }

    /// Forgets the stream and its errors. Returns the stream.
    pub(super) fn close(&mut self) -> Option<AdsStream> {
        self.retry_at = None;
        self.unreachable = None;
        self.rejections.clear();
        self.versions.clear();
        self.backoff.reset();
        self.stream.take()
    }

    /// The names of a type changed.
    pub(super) fn want(&mut self, now: Time, resource_type: ResourceType) {
        if let Some(stream) = &mut self.stream {
            stream.want(now, resource_type);
        }
    }

    /// The names of all types changed.
    pub(super) fn want_all(&mut self, now: Time) {
        ResourceType::ALL.into_iter().for_each(|resource_type| self.want(now, resource_type));
    }
}
