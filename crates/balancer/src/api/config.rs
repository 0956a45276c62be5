//! Typed policy configurations. Each one builds its own policy, so there is no registry at run time.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::{Fields, Policy};

/// The configuration of one policy, children included.
pub trait PolicyConfig: Any + Debug + Send + Sync {
    /// The policy's name as in gRPC's service configs and logs, `_experimental` suffix included (A27-08).
    fn policy_name(&self) -> &'static str;

    /// Builds an instance of the policy, which gets this configuration in its first `update`.
    fn build(&self) -> Box<dyn Policy>;

    /// Whether both configurations are equal, so that an update need not be passed on.
    fn dyn_eq(&self, other: &dyn PolicyConfig) -> bool;

    /// For downcasts; see [`config_of`].
    fn as_any(&self) -> &dyn Any;

    /// The fields, by the names in the gRFCs, without the children.
    fn fields(&self) -> Fields {
        Fields::default()
    }
}

/// The reason why a policy rejected an update. It keeps its previous configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{policy}: {reason}")]
pub struct ConfigError {
    /// The policy that rejected the update.
    pub policy: &'static str,
    /// The problems found.
    pub reason: String,
}

impl ConfigError {
    /// An error that lists all `problems`, if there are any.
    ///
    /// # Errors
    /// If there are problems.
    pub fn unless_empty(policy: &'static str, problems: &[String]) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { policy, reason: problems.join("; ") }) }
    }
}

/// Downcasts the configuration to the type of the policy.
///
/// # Errors
/// If the configuration is that of a different policy, which is a bug in the parent.
pub fn config_of<'a, T: PolicyConfig>(
    policy: &'static str,
    config: &'a Arc<dyn PolicyConfig>,
) -> Result<&'a T, ConfigError> {
    config.as_any().downcast_ref().ok_or_else(|| ConfigError {
        policy,
        reason: format!("was given the configuration of {}", config.policy_name()),
    })
}

/// Implements [`PolicyConfig`] for a type that is `Debug + PartialEq`. The optional fourth argument returns the fields
/// for display.
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
            fn dyn_eq(&self, other: &dyn $crate::api::PolicyConfig) -> bool {
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
        std::ptr::addr_eq(self, other) || self.dyn_eq(other)
    }
}
