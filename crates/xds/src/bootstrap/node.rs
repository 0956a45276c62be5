//! The identity of this client.

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value as ProtoValue};
use serde_json::Value;

use super::json::{Place, Problems};
use crate::resource::Locality;

/// A27-25: the user agent name of every proxyless client.
const USER_AGENT_NAME: &str = "gRPC Rust proxyless";
/// A27-27, A27-56, X-06: the features that the control plane may rely on.
const CLIENT_FEATURES: [&str; 2] =
    ["envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"];

/// The `node` of the bootstrap, without the fields that the client fills in itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConfig {
    /// The node id.
    pub id: String,
    /// The node's cluster.
    pub cluster: String,
    /// The locality that the node runs in.
    pub locality: Option<Locality>,
    /// Arbitrary metadata for the control plane.
    pub metadata: Option<serde_json::Map<String, Value>>,
}

impl NodeConfig {
    /// Parses `node` by the proto JSON rules. A27-29: user agent and client features are ignored.
    pub(super) fn parse(node: &Place<'_>, problems: &mut Problems) -> Self {
        if node.object(problems).is_none() {
            return Self::default();
        }
        Self {
            id: node.string_field("id", problems).unwrap_or_default(),
            cluster: node.string_field("cluster", problems).unwrap_or_default(),
            locality: node.field("locality").and_then(|place| locality(&place, problems)),
            metadata: node.field("metadata").and_then(|place| place.object(problems)).cloned(),
        }
    }

    pub(super) fn to_proto(&self) -> core::Node {
        let locality = self.locality.clone().map(|Locality { region, zone, sub_zone }| core::Locality {
            region,
            zone,
            sub_zone,
        });
        core::Node {
            id: self.id.clone(),
            cluster: self.cluster.clone(),
            metadata: self.metadata.as_ref().map(to_struct),
            locality,
            user_agent_name: USER_AGENT_NAME.to_owned(),
            // A27-26, and A27-28: there is no build version in v3.
            user_agent_version_type: Some(core::node::UserAgentVersionType::UserAgentVersion(
                env!("CARGO_PKG_VERSION").to_owned(),
            )),
            client_features: CLIENT_FEATURES.map(str::to_owned).to_vec(),
            ..Default::default()
        }
    }
}

fn locality(place: &Place<'_>, problems: &mut Problems) -> Option<Locality> {
    place.object(problems)?;
    let sub_zone = place.proto_field("sub_zone", "subZone", problems);
    Some(Locality {
        region: place.string_field("region", problems).unwrap_or_default(),
        zone: place.string_field("zone", problems).unwrap_or_default(),
        sub_zone: sub_zone.and_then(|place| place.string(problems)).unwrap_or_default().to_owned(),
    })
}

/// A27-23: each kind of JSON value maps to a kind of `google.protobuf.Value`.
fn to_struct(object: &serde_json::Map<String, Value>) -> Struct {
    Struct { fields: object.iter().map(|(key, value)| (key.clone(), to_value(value))).collect() }
}

fn to_value(value: &Value) -> ProtoValue {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        // Every `serde_json` number converts to f64 unless the feature `arbitrary_precision` is on.
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(list) => Kind::ListValue(ListValue { values: list.iter().map(to_value).collect() }),
        Value::Object(object) => Kind::StructValue(to_struct(object)),
    };
    ProtoValue { kind: Some(kind) }
}
