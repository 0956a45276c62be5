//! `pick_first`: connects to the first address that accepts, by happy eyeballs (gRFCs A61 and A62), and sends every RPC
//! there. The leaf of every tree: petiole policies have one per endpoint.

mod addresses;
mod attempt;
mod config;
mod picker;
mod policy;

#[cfg(test)]
mod health_tests;
#[cfg(test)]
mod scaling_tests;
#[cfg(test)]
mod tests;

pub use config::PickFirstConfig;
pub use policy::PickFirst;
