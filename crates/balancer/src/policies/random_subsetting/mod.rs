//! `random_subsetting_experimental` (gRFC A68): passes a random subset of the endpoints to its child, chosen by
//! rendezvous hashing, so that few endpoints change when servers come and go.

mod config;
mod policy;

#[cfg(test)]
mod tests;

pub use config::RandomSubsettingConfig;
