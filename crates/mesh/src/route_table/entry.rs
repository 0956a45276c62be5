//! What a route says besides the cluster.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_sans_io::Rng;
use proxyless_xds::resource::{RetryPolicy, RouteAction, VirtualHost};

use super::hash::CompiledHashPolicy;

/// The settings of a route, with those of its virtual host and listener merged in.
#[derive(Debug)]
pub struct RouteEntry {
    name: Arc<str>,
    max_stream_duration: Option<Duration>,
    retry_policy: Option<Arc<RetryPolicy>>,
    auto_host_rewrite: bool,
    hash_policies: Box<[CompiledHashPolicy]>,
}

impl RouteEntry {
    pub(super) fn new(
        name: Arc<str>,
        action: &RouteAction,
        virtual_host: &VirtualHost,
        max_stream_duration: Option<Duration>,
    ) -> Self {
        let retry_policy = action.retry_policy.as_ref().or(virtual_host.retry_policy.as_ref());
        Self {
            name,
            // A31: the listener's limit counts if the route has none; zero is no limit.
            max_stream_duration: action
                .max_stream_duration
                .or(max_stream_duration)
                .filter(|limit| !limit.is_zero()),
            // A44: the virtual host's policy counts if the route has none; the two are not merged.
            retry_policy: retry_policy.cloned().map(Arc::new),
            auto_host_rewrite: action.auto_host_rewrite,
            hash_policies: action.hash_policies.iter().map(CompiledHashPolicy::new).collect(),
        }
    }

    /// The route's name, for people.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The longest an RPC may take (gRFC A31); `None`: as long as its caller likes.
    #[must_use]
    pub fn max_stream_duration(&self) -> Option<Duration> {
        self.max_stream_duration
    }

    /// When failed RPCs are tried again (gRFC A44).
    #[must_use]
    pub fn retry_policy(&self) -> Option<&Arc<RetryPolicy>> {
        self.retry_policy.as_ref()
    }

    /// Whether `:authority` becomes the endpoint's host name (gRFC A81).
    #[must_use]
    pub fn auto_host_rewrite(&self) -> bool {
        self.auto_host_rewrite
    }

    /// The RPC's hash (gRFC A42). `channel_id` is random, and the same for every RPC of the channel.
    #[must_use]
    pub fn hash(&self, headers: &HeaderMap, channel_id: u64, rng: &mut Rng) -> u64 {
        let mut hash: Option<u64> = None;
        for policy in &self.hash_policies {
            // A42: a policy without a result changes nothing; the rotation keeps equal ones from cancelling out.
            if let Some(new) = policy.hash(headers, channel_id) {
                hash = Some(hash.map_or(new, |old| old.rotate_left(1) ^ new));
            }
            // A42: a terminal policy ends the list once there is a hash.
            if policy.terminal() && hash.is_some() {
                break;
            }
        }
        // A42: random if (and only if) no policy gave a hash.
        hash.unwrap_or_else(|| rng.next_u64())
    }
}
