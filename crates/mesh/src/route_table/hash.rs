//! One hash policy of a route (gRFC A42).

use http::HeaderMap;
use proxyless_xds::resource::{HashPolicy, HashPolicyKind, HeaderRewrite};
use xxhash_rust::xxh64::xxh64;

use super::headers::HeaderSource;

/// The hash of the policy `io.grpc.channel_id`: random, and constant for a channel.
#[derive(Clone, Copy, Debug)]
pub struct ChannelHash(pub u64);

#[derive(Debug)]
pub(super) struct CompiledHashPolicy {
    input: Input,
    /// Whether it ends the list once there is a hash.
    pub(super) terminal: bool,
}

#[derive(Debug)]
enum Input {
    Header { source: HeaderSource, rewrite: Option<HeaderRewrite> },
    ChannelId,
}

impl CompiledHashPolicy {
    pub(super) fn new(policy: &HashPolicy) -> Self {
        let input = match &policy.kind {
            HashPolicyKind::Header { name, rewrite } => {
                Input::Header { source: HeaderSource::new(name), rewrite: rewrite.clone() }
            }
            HashPolicyKind::ChannelId => Input::ChannelId,
        };
        Self { input, terminal: policy.terminal }
    }

    /// `None` if the request has nothing to hash.
    pub(super) fn hash(&self, headers: &HeaderMap, channel: ChannelHash) -> Option<u64> {
        match &self.input {
            Input::ChannelId => Some(channel.0),
            Input::Header { source, rewrite } => {
                let value = source.value(headers)?;
                // A42: XXH64 with seed 0.
                Some(match rewrite {
                    None => xxh64(value.as_bytes(), 0),
                    Some(HeaderRewrite { regex, substitution }) => {
                        xxh64(regex.replace_all(&value, substitution.as_str()).as_bytes(), 0)
                    }
                })
            }
        }
    }
}
