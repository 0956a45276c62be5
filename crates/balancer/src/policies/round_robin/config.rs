//! The configuration of `round_robin`.

use super::RoundRobin;
use crate::policy_config;

/// The configuration of `round_robin`: there is nothing to configure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundRobinConfig;

policy_config!(RoundRobinConfig, "round_robin", RoundRobin::default());
