//! The settings shared by all RPCs of a channel.

use std::sync::Arc;

use http::uri::Scheme;
use tokio::runtime::Handle;

use super::replay::DEFAULT_LIMIT;
use super::throttle::RetryThrottle;
use crate::credentials::{Fallback, XdsCredentials};

/// The settings shared by all RPCs of a channel.
pub(crate) struct CallSettings {
    /// The runtime of timers. Callers need not be in a runtime.
    pub(crate) runtime: Handle,
    pub(crate) policy_retries: PolicyRetries,
    /// The size of the retry buffer of a request.
    pub(crate) retry_buffer: usize,
    pub(crate) throttle: Option<Arc<RetryThrottle>>,
    /// The limit on header lists, for errors.
    pub(crate) max_header_list_size: u32,
    /// The scheme of requests to endpoints without TLS settings.
    pub(crate) fallback_scheme: Scheme,
}

/// Whether the retry policies of routes are used (gRFC A44).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PolicyRetries {
    #[default]
    Enabled,
    Disabled,
}

/// The retry options of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryOptions {
    pub(crate) policy_retries: PolicyRetries,
    pub(crate) buffer: usize,
    /// The maximum number of tokens, and their ratio.
    pub(crate) throttling: Option<(u32, f64)>,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self { policy_retries: PolicyRetries::Enabled, buffer: DEFAULT_LIMIT, throttling: None }
    }
}

impl CallSettings {
    pub(crate) fn new(
        runtime: Handle,
        retries: RetryOptions,
        max_header_list_size: u32,
        credentials: &XdsCredentials,
    ) -> Self {
        let fallback_scheme = match credentials {
            XdsCredentials::Xds(Fallback::Tls(_)) => Scheme::HTTPS,
            _ => Scheme::HTTP,
        };
        let RetryOptions { policy_retries, buffer, throttling } = retries;
        let throttle = throttling.map(|(tokens, ratio)| Arc::new(RetryThrottle::new(tokens, ratio)));
        Self {
            runtime,
            policy_retries,
            retry_buffer: buffer,
            throttle,
            max_header_list_size,
            fallback_scheme,
        }
    }
}
