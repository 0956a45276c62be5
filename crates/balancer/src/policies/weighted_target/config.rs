//! The configuration of the weighted_target policy.

use std::sync::Arc;

use proxyless_sans_io::SmallMap;

use super::WeightedTarget;
use crate::api::PolicyConfig;
use crate::policy_config;

/// The children by name. The endpoints of a child are the group of the same name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightedTargetConfig {
    /// The children.
    pub targets: SmallMap<Arc<str>, Target>,
}

/// A child and its weight.
#[derive(Clone, Debug)]
pub struct Target {
    /// The weight relative to the other children; not 0.
    pub weight: u32,
    /// The configuration of the child's policy.
    pub config: Arc<dyn PolicyConfig>,
}

impl WeightedTargetConfig {
    /// All problems of the configuration, if any.
    pub(super) fn problems(&self) -> Option<String> {
        let problem = |(name, target): (&Arc<str>, &Target)| {
            (target.weight == 0).then(|| format!("the weight of target {name:?} is 0"))
        };
        let problems: Vec<String> = self.targets.iter().filter_map(problem).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.weight == other.weight && *self.config == *other.config
    }
}

policy_config!(WeightedTargetConfig, "weighted_target_experimental", WeightedTarget::default());
