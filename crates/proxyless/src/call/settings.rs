//! What all RPCs of a channel have in common.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::replay::DEFAULT_LIMIT;
use super::throttle::RetryThrottle;

/// What all RPCs of a channel have in common.
pub(crate) struct CallSettings {
    /// Where timers run. Callers need not be in a runtime.
    pub(crate) runtime: Handle,
    pub(crate) policy_retries: PolicyRetries,
    /// How much of a request is kept for another attempt.
    pub(crate) retry_buffer: usize,
    pub(crate) throttle: Option<Arc<RetryThrottle>>,
    /// What is not taken from servers, for errors.
    pub(crate) max_header_list_size: u32,
}

/// Whether the retry policies of routes are used (gRFC A44).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PolicyRetries {
    #[default]
    Enabled,
    Disabled,
}

/// The options of a channel that are about retries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryOptions {
    pub(crate) policy_retries: PolicyRetries,
    pub(crate) buffer: usize,
    /// The maximum of tokens, and their ratio.
    pub(crate) throttling: Option<(u32, f64)>,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self { policy_retries: PolicyRetries::Enabled, buffer: DEFAULT_LIMIT, throttling: None }
    }
}

impl CallSettings {
    pub(crate) fn new(runtime: Handle, retries: RetryOptions, max_header_list_size: u32) -> Self {
        let RetryOptions { policy_retries, buffer, throttling } = retries;
        let throttle = throttling.map(|(tokens, ratio)| Arc::new(RetryThrottle::new(tokens, ratio)));
        Self { runtime, policy_retries, retry_buffer: buffer, throttle, max_header_list_size }
    }
}
