//! The configuration of `pick_first`.

use std::time::Duration;

use super::PickFirst;
use crate::api::Fields;
use crate::policy_config;

/// The configuration of `pick_first`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickFirstConfig {
    /// Whether each update puts the endpoints into a random order first (A62).
    pub shuffle_address_list: bool,
    /// How long one address is tried before the next one is tried beside it (A61); taken as 100 ms if shorter and as
    /// 2 s if longer.
    pub connection_attempt_delay: Duration,
    /// Whether the parent is a petiole policy, which wants to be told of the connection's health instead of READY
    /// (A61). Not for users.
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
    /// The configuration that petiole policies give their children.
    #[must_use]
    pub fn for_petiole() -> Self {
        Self { petiole: true, ..Self::default() }
    }

    /// The delay within its bounds.
    pub(super) fn attempt_delay(&self) -> Duration {
        // A61: values outside of 100 ms to 2 s count as the nearest bound.
        self.connection_attempt_delay.clamp(Duration::from_millis(100), Duration::from_secs(2))
    }
}

policy_config!(PickFirstConfig, "pick_first", PickFirst::default(), |config| {
    Fields::from_iter([("shuffleAddressList".to_owned(), config.shuffle_address_list.into())])
});
