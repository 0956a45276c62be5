//! `round_robin`: connects to every endpoint and picks READY ones in turn. A petiole policy (gRFC A61).

mod config;
mod picker;
mod policy;
pub(super) mod position;

#[cfg(test)]
mod tests;

pub use config::RoundRobinConfig;
