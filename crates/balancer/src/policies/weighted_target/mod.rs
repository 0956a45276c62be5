//! `weighted_target_experimental` (gRFC A28): children that share the RPCs by weight; in xDS, the localities.
//!
//! Inputs: the configuration with the endpoints of every child grouped by the child's name, what the children publish.
//! Output: the best state that any child has, and a picker that draws among the children in that state, and those that
//! are IDLE: they have to be picked to connect.

mod config;
mod picker;
mod policy;
#[cfg(test)]
mod tests;

pub use config::{Target, WeightedTargetConfig};
pub use policy::WeightedTarget;
