//! Load balancing policies of the application (gRFC A52): the seam to the code that has them.
//!
//! The input is a TypedStruct whose type is not one of gRPC's own policies. [`CustomPolicies`] says whether the
//! application has the policy, and turns its configuration into an opaque [`CustomConfig`], which this crate only stores
//! and compares. Violations have the paths of the resource, like all others.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use serde_json::{Map, Number};

use super::field::Field;
use super::lb_config::{self, LbPolicy};
use super::lb_json;

/// The policies of an application, by name.
pub trait CustomPolicies: fmt::Debug + Send + Sync {
    /// Whether there is a policy with this name.
    fn contains(&self, name: &str) -> bool;

    /// Parses the configuration of the policy with this name; `None` after a violation was recorded in `config`.
    fn parse(&self, name: &str, config: &mut CustomConfigReader<'_>) -> Option<Arc<dyn CustomConfig>>;
}

/// A validated configuration of a policy, opaque to this crate.
pub trait CustomConfig: Any + fmt::Debug + Send + Sync {
    /// Whether both configurations are equal.
    fn dyn_eq(&self, other: &dyn CustomConfig) -> bool;

    /// For downcasts.
    fn as_any(&self) -> &dyn Any;
}

/// A policy of the application with its configuration.
#[derive(Clone, Debug)]
pub struct CustomPolicy {
    /// The name.
    pub name: Arc<str>,
    /// The configuration, children included.
    pub config: Arc<dyn CustomConfig>,
    /// The child policies in the configuration.
    pub children: Vec<LbPolicy>,
}

impl PartialEq for CustomPolicy {
    fn eq(&self, other: &Self) -> bool {
        let same = || Arc::ptr_eq(&self.config, &other.config) || self.config.dyn_eq(&*other.config);
        self.name == other.name && self.children == other.children && same()
    }
}

/// The configuration of a policy, as its parser sees it.
pub struct CustomConfigReader<'a> {
    at: &'a Field<'a>,
    encoded: &'a Struct,
    json: Map<String, serde_json::Value>,
    depth: usize,
    children: Vec<LbPolicy>,
}

impl CustomConfigReader<'_> {
    /// The fields of the TypedStruct. Whole numbers up to 2^53 are integers.
    #[must_use]
    pub fn json(&self) -> &Map<String, serde_json::Value> {
        &self.json
    }

    /// The first supported policy of this field, a list in the form of gRPC's service configs: `[{"round_robin": {}}]`.
    /// `None` after a violation was recorded.
    pub fn child(&mut self, field: &str) -> Option<LbPolicy> {
        let child = lb_json::child(self.at, self.encoded, field, self.depth)?;
        self.children.push(child.clone());
        Some(child)
    }

    /// Records a violation of this field; of the configuration as a whole if there is no field.
    pub fn reject(&self, field: Option<&str>, why: impl Into<String>) {
        match field {
            Some(field) => self.at.key(field).reject(why),
            None => self.at.reject(why),
        }
    }
}

/// Whether gRPC's own policies include this name, in either of its forms.
#[must_use]
pub fn is_built_in_policy(name: &str) -> bool {
    lb_json::built_in(name).is_some() || lb_config::is_built_in(name)
}

/// Reads the configuration of the policy with this name, which is one of `policies`.
pub(super) fn read(
    policies: &dyn CustomPolicies,
    at: &Field<'_>,
    name: &str,
    encoded: &Struct,
    depth: usize,
) -> Option<LbPolicy> {
    let json = fields(at, encoded)?;
    let mut config = CustomConfigReader { at, encoded, json, depth, children: Vec::new() };
    // A52-08: the parser decides whether the configuration is valid.
    let parsed = policies.parse(name, &mut config)?;
    Some(LbPolicy::Custom(CustomPolicy { name: name.into(), config: parsed, children: config.children }))
}

/// A52-06: the Struct as it is.
fn fields(at: &Field<'_>, encoded: &Struct) -> Option<Map<String, serde_json::Value>> {
    // The recursion is as deep as the message, which prost limits.
    let field = |(name, value): (&String, &Value)| Some((name.clone(), json(&at.key(name), value)?));
    encoded.fields.iter().map(field).collect()
}

fn json(at: &Field<'_>, value: &Value) -> Option<serde_json::Value> {
    Some(match &value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(value)) => (*value).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::NumberValue(value)) => number(at, *value)?.into(),
        Some(Kind::StructValue(value)) => fields(at, value)?.into(),
        Some(Kind::ListValue(list)) => {
            let values = list.values.iter().enumerate().map(|(i, value)| json(&at.index(i), value));
            values.collect::<Option<Vec<_>>>()?.into()
        }
    })
}

/// A Struct has only floating point numbers; parsers expect integers where a configuration has whole numbers.
fn number(at: &Field<'_>, value: f64) -> Option<Number> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return Some((value as i64).into());
    }
    Number::from_f64(value).or_else(|| at.fail(format!("{value} is not a number of JSON")))
}
