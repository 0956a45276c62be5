//! The policies that do not depend on xDS. Each folder is one policy: `config`, `policy`, `picker`, `tests`.

pub mod least_request;
pub mod outlier_detection;
pub mod pick_first;
pub mod priority;
pub mod random_subsetting;
pub mod ring_hash;
pub mod round_robin;
#[cfg(test)]
mod stub;
pub mod weighted_round_robin;
pub mod weighted_target;
