//! What the parser of a policy's configuration reads, and its errors.

use std::fmt;
use std::sync::Arc;

use proxyless_balancer::api::PolicyConfig;
use proxyless_xds::resource::{CustomConfigReader, LbPolicy};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::policies::lb_policy;

/// The configuration of a policy in a Cluster resource, as its parser sees it: the fields of a TypedStruct.
pub struct ConfigReader<'a> {
    source: &'a mut (dyn Source + 'a),
}

/// The reader of the xDS client, without its lifetime.
trait Source {
    fn json(&self) -> &Map<String, Value>;
    fn child(&mut self, field: &str) -> Option<LbPolicy>;
}

impl Source for CustomConfigReader<'_> {
    fn json(&self) -> &Map<String, Value> {
        self.json()
    }

    fn child(&mut self, field: &str) -> Option<LbPolicy> {
        self.child(field)
    }
}

impl<'a> ConfigReader<'a> {
    pub(super) fn new(source: &'a mut CustomConfigReader<'_>) -> Self {
        Self { source }
    }

    /// The fields. Whole numbers are integers, although protobuf sends floating point numbers only.
    #[must_use]
    pub fn json(&self) -> &Map<String, Value> {
        self.source.json()
    }

    /// Deserializes the fields. `#[serde(deny_unknown_fields)]` on the type rejects misspelt ones; without it they are
    /// ignored, so that a control plane can add fields before all its clients know them.
    ///
    /// # Errors
    /// If they do not fit, with the field where serde tells it.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, InvalidConfig> {
        let parse = |fields: &Map<String, Value>| {
            serde_json::from_value::<T>(Value::Object(fields.clone())).map_err(|error| error.to_string())
        };
        parse(self.json()).map_err(|error| match culprit(self.json(), &error, |fields| parse(fields).err()) {
            Some(field) => InvalidConfig::at(field, error),
            None => InvalidConfig::new(error),
        })
    }

    /// The configuration of a child policy: the first supported policy of the list in this field, by convention
    /// `childPolicy`, in the form of gRPC's service configs: `[{"round_robin": {}}]`. Policies of gRPC and those of the
    /// same registry are supported.
    ///
    /// # Errors
    /// If the field is missing, none of the policies is supported, or the configuration of the first supported one is
    /// invalid.
    pub fn child(&mut self, field: &str) -> Result<Arc<dyn PolicyConfig>, InvalidConfig> {
        // The violation is recorded, at its own path.
        let policy = self.source.child(field).ok_or_else(InvalidConfig::recorded)?;
        lb_policy::policy_config(&policy).map_err(|error| InvalidConfig::at(field, error.to_string()))
    }
}

/// The field that an error of serde is about. Fields are read in order up to the first bad one, so that the error changes
/// only if that one is removed. Errors about missing and unknown fields name them.
fn culprit<'f>(
    fields: &'f Map<String, Value>,
    error: &str,
    parse: impl Fn(&Map<String, Value>) -> Option<String>,
) -> Option<&'f str> {
    if error.starts_with("missing field") || error.starts_with("unknown field") {
        return None;
    }
    let without = |field: &&String| {
        let mut others = fields.clone();
        others.remove(*field);
        parse(&others).as_deref() != Some(error)
    };
    fields.keys().find(without).map(String::as_str)
}

/// The reasons why a configuration is invalid. They are sent to the control plane, with their paths in the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvalidConfig {
    problems: Vec<(Option<String>, String)>,
}

impl InvalidConfig {
    /// A problem of the configuration as a whole.
    pub fn new(why: impl Into<String>) -> Self {
        Self { problems: vec![(None, why.into())] }
    }

    /// A problem of this field.
    pub fn at(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { problems: vec![(Some(field.into()), why.into())] }
    }

    /// Adds the problems of `other`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.problems.extend(other.problems);
        self
    }

    /// A problem that the resource already has.
    fn recorded() -> Self {
        Self::default()
    }

    pub(super) fn record(&self, config: &CustomConfigReader<'_>) {
        for (field, why) in &self.problems {
            config.reject(field.as_deref(), why.as_str());
        }
    }
}

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (field, why)) in self.problems.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "; " })?;
            match field {
                Some(field) => write!(f, "{field}: {why}")?,
                None => f.write_str(why)?,
            }
        }
        if self.problems.is_empty() { f.write_str("a child policy is invalid") } else { Ok(()) }
    }
}

impl std::error::Error for InvalidConfig {}

impl From<String> for InvalidConfig {
    fn from(why: String) -> Self {
        Self::new(why)
    }
}

impl From<&str> for InvalidConfig {
    fn from(why: &str) -> Self {
        Self::new(why)
    }
}

impl From<serde_json::Error> for InvalidConfig {
    fn from(error: serde_json::Error) -> Self {
        Self::new(error.to_string())
    }
}
