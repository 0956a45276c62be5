//! `ring_hash_experimental` (gRFC A42, A61, A76): a petiole that sends RPCs with the same hash to the same endpoint.
//!
//! Inputs: endpoints with weights (those of their localities included), the states of their pick_first children,
//! signals of picks that hit an IDLE endpoint. Output: a picker with the ring and the state of every endpoint on it.

mod config;
mod picker;
mod policy;
mod ring;
#[cfg(test)]
mod tests;
mod weights;

pub use config::{RING_SIZE_CAP, RingHashConfig};
pub use policy::RingHash;
