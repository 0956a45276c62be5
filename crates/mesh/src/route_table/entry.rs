//! The settings of a route other than the cluster.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_sans_io::Rng;
use proxyless_xds::resource::{RetryPolicy, RouteAction, VirtualHost};

use super::hash::{ChannelHash, CompiledHashPolicy};

/// The settings of a route, with those of its virtual host and listener merged in.
#[derive(Debug)]
pub struct RouteEntry {
    /// The maximum duration of an RPC (gRFC A31); `None`: unlimited.
    pub max_stream_duration: Option<Duration>,
    /// The retry policy (gRFC A44).
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// Whether `:authority` is rewritten to the endpoint's host name (gRFC A81).
    pub auto_host_rewrite: bool,
    hash_policies: Box<[CompiledHashPolicy]>,
}

impl RouteEntry {
    pub(super) fn new(
        action: &RouteAction,
        virtual_host: &VirtualHost,
        max_stream_duration: Option<Duration>,
    ) -> Self {
        let retry_policy = action.retry_policy.as_ref().or(virtual_host.retry_policy.as_ref());
        Self {
            // A31: without its own limit the listener's applies; zero is unlimited.
            max_stream_duration: action
                .max_stream_duration
                .or(max_stream_duration)
                .filter(|limit| !limit.is_zero()),
            // A44: without its own policy the virtual host's applies; the two are not merged.
            retry_policy: retry_policy.cloned(),
            auto_host_rewrite: action.auto_host_rewrite,
            hash_policies: action.hash_policies.iter().map(CompiledHashPolicy::new).collect(),
        }
    }

    /// The RPC's hash (gRFC A42).
    #[must_use]
    pub fn hash(&self, headers: &HeaderMap, channel: ChannelHash, rng: &mut Rng) -> u64 {
        let mut hash: Option<u64> = None;
        for policy in &self.hash_policies {
            // A42: a policy without a result changes nothing; the rotation keeps equal hashes from cancelling out.
            if let Some(new) = policy.hash(headers, channel) {
                hash = Some(hash.map_or(new, |old| old.rotate_left(1) ^ new));
            }
            // A42: a terminal policy ends the list once there is a hash.
            if policy.terminal && hash.is_some() {
                break;
            }
        }
        // A42: random if (and only if) no policy produced a hash.
        hash.unwrap_or_else(|| rng.next_u64())
    }
}
