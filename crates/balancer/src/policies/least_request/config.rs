//! The configuration of `least_request_experimental`.

use super::policy::LeastRequest;
use crate::api::Fields;
use crate::policy_config;

pub(super) const NAME: &str = "least_request_experimental";

/// The largest number of endpoints sampled per pick, whatever the control plane requests.
const MAX_CHOICE_COUNT: u32 = 10;

/// The configuration of `least_request_experimental`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeastRequestConfig {
    /// The number of endpoints sampled per pick; at least 2, and used up to 10.
    pub choice_count: u32,
}

impl Default for LeastRequestConfig {
    fn default() -> Self {
        // A48-04: two by default.
        Self { choice_count: 2 }
    }
}

impl LeastRequestConfig {
    /// The number of samples per pick.
    pub(super) fn samples(&self) -> u32 {
        // A48-05: a larger count is used as 10. A smaller one than 2 is rejected before (A48-06).
        self.choice_count.clamp(2, MAX_CHOICE_COUNT)
    }
}

policy_config!(LeastRequestConfig, NAME, LeastRequest::default(), |config| {
    Fields::from_iter([("choiceCount".to_owned(), config.choice_count.into())])
});
