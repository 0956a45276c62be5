//! The configuration of `pick_first`.

use std::time::Duration;

use super::PickFirst;
use crate::api::Fields;
use crate::policy_config;

/// The configuration of `pick_first`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickFirstConfig {
    /// Whether each update shuffles the endpoints (A62).
    pub shuffle_address_list: bool,
    /// The delay before the next address is tried in addition (A61); clamped to 100 ms … 2 s.
    pub connection_attempt_delay: Duration,
    /// Whether the parent is a petiole policy, which receives the connection's health instead of READY (A61). Not
    /// user-configurable.
    pub petiole: bool,
}

impl Default for PickFirstConfig {
    fn default() -> Self {
        Self {
            shuffle_address_list: false,
            connection_attempt_delay: Duration::from_millis(250),
            petiole: false,
        }
    }
}

impl PickFirstConfig {
    /// The configuration for children of petiole policies.
    #[must_use]
    pub fn for_petiole() -> Self {
        Self { petiole: true, ..Self::default() }
    }

    /// The delay, clamped.
    pub(super) fn attempt_delay(&self) -> Duration {
        // A61: clamped to 100 ms … 2 s.
        self.connection_attempt_delay.clamp(Duration::from_millis(100), Duration::from_secs(2))
    }
}

policy_config!(PickFirstConfig, "pick_first", PickFirst::default(), |config| {
    Fields::from_iter([("shuffleAddressList".to_owned(), config.shuffle_address_list.into())])
});
