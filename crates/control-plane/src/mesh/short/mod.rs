//! The short form of common meshes. docs/serve.md describes every field.

mod cluster;
mod endpoint;
mod policy;
mod route;
mod service;

pub(super) use cluster::{aggregate_list, cluster};
pub(super) use service::service;

use proxyless_testkit::Resource;

use crate::file::node::Node;
use crate::file::problem::Problems;

/// Makes the resources of an entry of a section, by its name and value.
pub(super) type Section = fn(&str, &Node, &mut Problems) -> Vec<Resource>;
