//! The configuration of the weighted_target policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::WeightedTarget;
use crate::api::PolicyConfig;
use crate::policy_config;

/// The children by name. The endpoints of a child are the group of the same name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightedTargetConfig {
    /// The children.
    pub targets: BTreeMap<Arc<str>, Target>,
}

/// One child and its share.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its share of the RPCs, relative to the other children's; not 0.
    pub weight: u32,
    /// The configuration of the policy that it runs.
    pub config: Arc<dyn PolicyConfig>,
}

impl WeightedTargetConfig {
    /// All that is wrong with it, if anything.
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
