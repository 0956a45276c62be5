//! `ring_hash_experimental` (gRFC A42, A61, A76): a petiole policy that sends RPCs with the same hash to the same
//! endpoint.
//!
//! Inputs: endpoints with weights (including those of their localities), the states of their pick_first children, and
//! signals of picks that reach an IDLE endpoint. Output: a picker with the ring and the states of its endpoints.

mod config;
mod picker;
mod policy;
mod ring;
#[cfg(test)]
mod tests;
mod weights;

pub use config::{RING_SIZE_CAP, RingHashConfig};
pub use policy::RingHash;
