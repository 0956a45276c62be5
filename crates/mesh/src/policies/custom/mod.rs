//! The load balancing policies of the application (gRFC A52).
//!
//! A [`Registry`] has their names and the parsers of their configurations. It is the input of the xDS client, which
//! rejects Clusters by it; the configurations pass through the Cluster as opaque values, and
//! [`lb_policy`](super::lb_policy) opens them again for the tree.

mod config;
mod reader;
mod registry;
#[cfg(test)]
mod tests;

pub(super) use config::OpaqueConfig;
pub use reader::{ConfigReader, InvalidConfig};
pub use registry::{Registry, RegistryError};
