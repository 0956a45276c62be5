//! The names of an application's policies, with the parsers of their configurations.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use proxyless_balancer::api::PolicyConfig;
use proxyless_sans_io::panics::contain;
use proxyless_xds::resource::{CustomConfig, CustomConfigReader, CustomPolicies, is_built_in_policy};

use super::config::OpaqueConfig;
use super::{ConfigReader, InvalidConfig};
use crate::targets;

/// The policies that gRPC configures itself, which have no configuration in a Cluster resource.
const INNER: [&str; 7] = [
    "cds_experimental",
    "outlier_detection_experimental",
    "priority_experimental",
    "weighted_target_experimental",
    "xds_cluster_impl_experimental",
    "xds_cluster_manager_experimental",
    "xds_override_host_experimental",
];

/// The load balancing policies of an application, by name (gRFC A52). Clones are the same registry.
///
/// A Cluster refers to a policy by a `TypedStruct` (`xds.type.v3` or `udpa.type.v1`) in its `load_balancing_policy`: the
/// policy's name is the part of `type_url` after the last slash, and `value` is its configuration.
///
/// Registries are compared by identity, since functions cannot be compared: channels share an xDS client only if they
/// have clones of one registry. Make one registry for the process, and clone it for every channel.
#[derive(Clone, Default)]
pub struct Registry(Arc<Policies>);

#[derive(Clone, Default)]
struct Policies {
    parsers: BTreeMap<&'static str, Arc<Parser>>,
    problems: Vec<String>,
}

type Parser = dyn Fn(&mut ConfigReader<'_>) -> Result<Arc<dyn PolicyConfig>, InvalidConfig> + Send + Sync;

impl Registry {
    /// A registry without policies.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a policy. The parser is called for each new version of a Cluster resource that names the policy, on the thread
    /// of the xDS client, so it must not block; if it fails or panics, the resource is rejected (NACK) with the reason,
    /// and its last valid version stays in use.
    ///
    /// The name is that of a protobuf message in the application's own package, such as `myorg.MyPolicy`, and that of
    /// [`PolicyConfig::policy_name`] of the configuration. A name that is invalid, taken by a policy of gRPC or
    /// registered twice is an error when the channel is built.
    ///
    /// On a clone of a registry, this makes a new registry.
    #[must_use]
    pub fn register<C: PolicyConfig>(
        mut self,
        name: &'static str,
        parser: impl Fn(&mut ConfigReader<'_>) -> Result<C, InvalidConfig> + Send + Sync + 'static,
    ) -> Self {
        let policies = Arc::make_mut(&mut self.0);
        let problem = problem(name)
            .or_else(|| policies.parsers.contains_key(name).then(|| format!("{name:?} is registered twice")));
        match problem {
            Some(problem) => policies.problems.push(problem),
            None => {
                let parser: Arc<Parser> = Arc::new(move |config| Ok(Arc::new(parser(config)?)));
                policies.parsers.insert(name, parser);
            }
        }
        self
    }

    /// Whether all policies could be registered.
    ///
    /// # Errors
    /// If not, with all problems.
    pub fn check(&self) -> Result<(), RegistryError> {
        match self.0.problems.is_empty() {
            true => Ok(()),
            false => Err(RegistryError(self.0.problems.clone())),
        }
    }

    /// The registry for an xDS client; `None` if there are no policies.
    #[must_use]
    pub fn for_client(&self) -> Option<Arc<dyn CustomPolicies>> {
        (!self.0.parsers.is_empty()).then(|| Arc::new(self.clone()) as _)
    }
}

/// A52-16: valid names of protobuf messages that are not gRPC's.
fn problem(name: &str) -> Option<String> {
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !name.split('.').all(is_word) {
        return Some(format!(
            "{name:?} is not a valid name of a protobuf message, such as \"myorg.MyPolicy\""
        ));
    }
    (INNER.contains(&name) || is_built_in_policy(name))
        .then(|| format!("{name:?} is a policy of gRPC itself: use a name in a package of your own"))
}

/// Policies that could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid registry of load balancing policies: {}", .0.join("; "))]
pub struct RegistryError(Vec<String>);

impl CustomPolicies for Registry {
    // A52-05: a policy that is not registered is unsupported.
    fn contains(&self, name: &str) -> bool {
        self.0.parsers.contains_key(name)
    }

    fn parse(&self, name: &str, config: &mut CustomConfigReader<'_>) -> Option<Arc<dyn CustomConfig>> {
        let parser = self.0.parsers.get(name)?;
        // A parser that panics must not take the xDS client with it, and with that all other channels.
        let parsed = contain(|| parser(&mut ConfigReader::new(config))).unwrap_or_else(|panicked| {
            tracing::error!(target: targets::XDS_CLIENT, policy = name, %panicked, "the parser panicked");
            Err(InvalidConfig::new(format!("the parser of {name} panicked: {panicked}")))
        });
        let parsed = parsed.and_then(|parsed| match parsed.policy_name() {
            found if found == name => Ok(parsed),
            found => Err(InvalidConfig::new(format!(
                "the parser of {name} returned the configuration of {found}, which is a bug of the client"
            ))),
        });
        match parsed {
            Ok(parsed) => Some(Arc::new(OpaqueConfig(parsed))),
            Err(invalid) => {
                invalid.record(config);
                None
            }
        }
    }
}

impl PartialEq for Registry {
    /// By identity; registries without policies are all equal.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.parsers.is_empty() && other.0.parsers.is_empty())
    }
}

impl Eq for Registry {}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.parsers.keys()).finish()
    }
}
