//! `priority_experimental` (gRFC A56, A115): children in an order of preference; the first that can serve does.
//!
//! Inputs: the configuration with the endpoints of every child grouped by the child's name, what the children publish,
//! failover and retention timers. Output: the state and picker of the chosen child, untouched.

mod child;
mod choice;
mod config;
mod policy;
mod serving;
#[cfg(test)]
mod tests;

pub use choice::{ChildView, Choice, choose};
pub use config::{DEFAULT_FAILOVER_TIMEOUT, Labels, PriorityChild, PriorityConfig, RETENTION};
pub use policy::Priority;
