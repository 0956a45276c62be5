//! `weighted_round_robin_experimental` (gRFC A58, A114): round robin in which endpoints get RPCs by the load that they
//! report, with their calls or out of band (gRFC A51). A petiole policy (gRFC A61).

mod config;
mod metrics;
mod picker;
mod policy;
mod report;
mod scheduler;
mod weight;

#[cfg(test)]
mod tests;

pub use config::{UtilizationMetric, WeightedRoundRobinConfig};
