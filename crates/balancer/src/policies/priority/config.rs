//! The configuration of the priority policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Priority;
use crate::api::{Fields, PolicyConfig};
use crate::policy_config;

/// How long a child may try to connect before the next one is tried too, unless configured otherwise (A56).
pub const DEFAULT_FAILOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a child lives on that a higher one has made unnecessary (A56).
pub const RETENTION: Duration = Duration::from_secs(15 * 60);

/// Children by name, and the order in which they are preferred.
// A37-62: the map and the list are apart, so that a child survives a change of its place.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityConfig {
    /// The children by name. The endpoints of a child are the group of the same name.
    pub children: BTreeMap<Arc<str>, PriorityChild>,
    /// Names of children, the most preferred first.
    pub priorities: Vec<Arc<str>>,
    /// How long a child may try to connect before the next one is tried too.
    pub failover_timeout: Duration,
    /// The cluster that has the priorities, for people.
    pub cluster: Arc<str>,
    /// What people call the children.
    pub labels: Labels,
}

/// What people call the children of a priority policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// By their names, which mean something.
    #[default]
    Names,
    /// By their places, since their names are made up.
    Places,
}

/// The configuration of one child.
#[derive(Clone, Debug)]
pub struct PriorityChild {
    /// The configuration of the policy that it runs.
    pub config: Arc<dyn PolicyConfig>,
    /// Whether its wishes to resolve again are kept from the parent (A37-58).
    pub ignore_reresolution_requests: bool,
}

impl PriorityConfig {
    /// A configuration with these children, preferred in this order, and gRPC's failover timeout.
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

    /// What people call a child.
    pub(super) fn label(&self, name: &str) -> String {
        let place = self.priorities.iter().position(|known| &**known == name);
        match (self.labels, place) {
            (Labels::Places, Some(place)) => format!("priority {place}"),
            _ => name.to_owned(),
        }
    }

    /// All that is wrong with the list of priorities, if anything.
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
