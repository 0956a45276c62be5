//! Typed policy configurations: each knows its policy and how to build it, so no registry is asked at run time.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::{Fields, Policy};

/// The configuration of one policy, children included.
pub trait PolicyConfig: Any + Debug + Send + Sync {
    /// The policy's name as in gRPC's service configs and logs, `_experimental` suffix included (A27-08).
    fn policy_name(&self) -> &'static str;

    /// A new instance of the policy; it is given this configuration by its first `update`.
    fn build(&self) -> Box<dyn Policy>;

    /// Whether both say the same, so that an update with it need not be passed on.
    fn same(&self, other: &dyn PolicyConfig) -> bool;

    /// For downcasts; see [`config_of`].
    fn as_any(&self) -> &dyn Any;

    /// Its fields for people, by the names that gRFCs give them, without the children.
    fn fields(&self) -> Fields {
        Fields::default()
    }
}

/// Why a policy could not use an update. It keeps what it had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{policy}: {why}")]
pub struct ConfigError {
    /// The policy that refused.
    pub policy: &'static str,
    /// What was wrong.
    pub why: String,
}

/// The configuration as the type that the policy wants.
///
/// # Errors
/// If the configuration is another policy's, which is a bug of the parent.
pub fn config_of<'a, T: PolicyConfig>(
    policy: &'static str,
    config: &'a Arc<dyn PolicyConfig>,
) -> Result<&'a T, ConfigError> {
    config.as_any().downcast_ref().ok_or_else(|| ConfigError {
        policy,
        why: format!("was given the configuration of {}", config.policy_name()),
    })
}

/// Implements [`PolicyConfig`] for a config type that is `Debug + PartialEq`. The fourth argument, if there is one, makes
/// a JSON object of its fields.
#[macro_export]
macro_rules! policy_config {
    ($config:ty, $name:expr, $build:expr $(, $fields:expr)?) => {
        impl $crate::api::PolicyConfig for $config {
            fn policy_name(&self) -> &'static str {
                $name
            }
            fn build(&self) -> Box<dyn $crate::api::Policy> {
                Box::new($build)
            }
            fn same(&self, other: &dyn $crate::api::PolicyConfig) -> bool {
                other.as_any().downcast_ref::<Self>().is_some_and(|other| self == other)
            }
            fn as_any(&self) -> &dyn ::std::any::Any {
                self
            }
            $(
                fn fields(&self) -> $crate::api::Fields {
                    let fields: fn(&Self) -> $crate::api::Fields = $fields;
                    fields(self)
                }
            )?
        }
    };
}

impl PartialEq for dyn PolicyConfig {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other) || self.same(other)
    }
}
