//! The configuration of `round_robin`.

use super::policy::RoundRobin;
use crate::policy_config;

/// The configuration of `round_robin`, which has no fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundRobinConfig;

policy_config!(RoundRobinConfig, "round_robin", RoundRobin::default());
