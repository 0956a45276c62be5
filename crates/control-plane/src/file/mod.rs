//! Files as trees with positions: YAML and JSON, the typed reading of their nodes, and problems with their places.

pub(crate) mod node;
pub(crate) mod problem;
pub(crate) mod read;
mod suggest;
pub(crate) mod yaml;

pub(crate) use suggest::did_you_mean;
