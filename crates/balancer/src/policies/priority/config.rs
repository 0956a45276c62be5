//! The configuration of the priority policy.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::SmallMap;

use super::Priority;
use crate::api::{Fields, PolicyConfig};
use crate::policy_config;

/// The default time for a child to connect before the next one is tried in addition (A56).
pub const DEFAULT_FAILOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which a deactivated child is dropped (A56).
pub const RETENTION: Duration = Duration::from_secs(15 * 60);

/// Children by name, and their order of preference.
// A37-62: the map and the list are separate, so that a child survives a change of its position.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityConfig {
    /// The children by name. The endpoints of a child are the group of the same name.
    pub children: SmallMap<Arc<str>, PriorityChild>,
    /// The names of the children, the most preferred first.
    pub priorities: Vec<Arc<str>>,
    /// The time for a child to connect before the next one is tried in addition.
    pub failover_timeout: Duration,
    /// The cluster that the priorities belong to, for display.
    pub cluster: Arc<str>,
    /// The display names of the children.
    pub labels: Labels,
}

/// The display names of the children of a priority policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// Their names, which are meaningful.
    #[default]
    Names,
    /// Their positions, since their names are generated.
    Places,
}

/// The configuration of one child.
#[derive(Clone, Debug)]
pub struct PriorityChild {
    /// The configuration of the child's policy.
    pub config: Arc<dyn PolicyConfig>,
    /// Whether its requests for re-resolution are suppressed (A37-58).
    pub ignore_reresolution_requests: bool,
}

impl PriorityConfig {
    /// Creates a configuration with these children in order of preference, and gRPC's failover timeout.
    #[must_use]
    pub fn new(children: impl IntoIterator<Item = (Arc<str>, PriorityChild)>) -> Self {
        let children: Vec<_> = children.into_iter().collect();
        Self {
            priorities: children.iter().map(|(name, _)| Arc::clone(name)).collect(),
            children: children.into_iter().collect(),
            failover_timeout: DEFAULT_FAILOVER_TIMEOUT,
            cluster: "".into(),
            labels: Labels::default(),
        }
    }

    /// The display name of a child.
    pub(super) fn label(&self, name: &str) -> String {
        let place = self.priorities.iter().position(|known| &**known == name);
        match (self.labels, place) {
            (Labels::Places, Some(place)) => format!("priority {place}"),
            _ => name.to_owned(),
        }
    }

    /// All problems of the list of priorities, if any.
    pub(super) fn problems(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        let problems: Vec<String> = self
            .priorities
            .iter()
            .filter_map(|name| {
                if !self.children.contains_key(name) {
                    Some(format!("priority {name:?} names no child"))
                } else if !seen.insert(name) {
                    Some(format!("priority {name:?} is listed twice"))
                } else {
                    None
                }
            })
            .collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

impl PartialEq for PriorityChild {
    fn eq(&self, other: &Self) -> bool {
        *self.config == *other.config
            && self.ignore_reresolution_requests == other.ignore_reresolution_requests
    }
}

policy_config!(PriorityConfig, "priority_experimental", Priority::default(), |config| {
    let names: Vec<String> = config.priorities.iter().map(|name| config.label(name)).collect();
    Fields::from_iter([("priorities", names.into())])
});
