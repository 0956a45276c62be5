//! `round_robin`: connects to every endpoint and gives each READY one its turn. A petiole policy (gRFC A61).

mod config;
mod picker;
mod policy;
mod position;

#[cfg(test)]
mod tests;

pub use config::RoundRobinConfig;
pub use policy::RoundRobin;
