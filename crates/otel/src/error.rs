//! The error of a configuration.

use std::fmt;

/// The configuration names metrics or optional labels that do not exist. It lists all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildError {
    /// The unknown names of metrics, in the order in which they were given.
    pub unknown_metrics: Vec<String>,
    /// The keys that are not optional labels of any metric, in the order in which they were given.
    pub unknown_optional_labels: Vec<String>,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [("metrics", &self.unknown_metrics), ("optional labels", &self.unknown_optional_labels)];
        let lists = lists.iter().filter(|(_, names)| !names.is_empty());
        let lists: Vec<_> = lists.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
        write!(f, "unknown {}", lists.join("; unknown "))
    }
}

impl std::error::Error for BuildError {}
