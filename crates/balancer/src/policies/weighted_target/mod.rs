//! `weighted_target_experimental` (gRFC A28): distributes RPCs to children by weight; in xDS, to localities.
//!
//! Inputs: the configuration with the endpoints grouped by child name, and the children's outputs. Output: the best
//! state of any child, and a picker that selects among the children in that state and those that are IDLE, which
//! connect only when picked.

mod config;
mod picker;
mod policy;
#[cfg(test)]
mod tests;

pub use config::{Target, WeightedTargetConfig};
pub use policy::WeightedTarget;
