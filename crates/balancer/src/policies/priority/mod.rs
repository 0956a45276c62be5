//! `priority_experimental` (gRFC A56, A115): children in order of preference; the first usable one serves.
//!
//! Inputs: the configuration with the endpoints grouped by child name, the children's outputs, failover and retention
//! timers. Output: the state and picker of the chosen child, unchanged.

mod choice;
mod config;
mod policy;
mod serving;
#[cfg(test)]
mod tests;
mod timers;

pub use choice::{Lower, PriorityChoice, PriorityState, choose};
pub use config::{DEFAULT_FAILOVER_TIMEOUT, Labels, PriorityChild, PriorityConfig, RETENTION};
pub use policy::Priority;
