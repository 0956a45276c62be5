//! The configuration of `random_subsetting_experimental`.

use std::sync::Arc;

use super::policy::RandomSubsetting;
use crate::api::{Fields, Layered, PolicyConfig};
use crate::policy_config;

pub(super) const NAME: &str = "random_subsetting_experimental";

/// The configuration of `random_subsetting_experimental`.
#[derive(Clone, Debug)]
pub struct RandomSubsettingConfig {
    /// The number of endpoints that the child gets; at least 1.
    pub subset_size: u32,
    /// The policy of the subset.
    pub child: Arc<dyn PolicyConfig>,
}

impl PartialEq for RandomSubsettingConfig {
    fn eq(&self, other: &Self) -> bool {
        self.subset_size == other.subset_size && *self.child == *other.child
    }
}

policy_config!(RandomSubsettingConfig, NAME, Layered::<RandomSubsetting>::default(), |config| {
    Fields::from_iter([("subsetSize".to_owned(), config.subset_size.into())])
});
