//! Load balancing policies and outlier detection.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::OutlierDetection;
use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::load_balancing_policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin;
use envoy_types::pb::envoy::extensions::load_balancing_policies::least_request::v3::LeastRequest;
use envoy_types::pb::envoy::extensions::load_balancing_policies::pick_first::v3::PickFirst;
use envoy_types::pb::envoy::extensions::load_balancing_policies::ring_hash::v3::RingHash;
use envoy_types::pb::envoy::extensions::load_balancing_policies::ring_hash::v3::ring_hash::HashFunction;
use envoy_types::pb::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use envoy_types::pb::envoy::extensions::load_balancing_policies::wrr_locality::v3::WrrLocality;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, UInt32Value, UInt64Value, Value};
use prost::Name;

use super::cluster::one_policy;
use super::{duration, pack};

/// A typed extension config, such as a load balancing policy.
pub fn extension<M: Name>(name: &str, config: &M) -> TypedExtensionConfig {
    TypedExtensionConfig { name: name.into(), typed_config: Some(pack(config)) }
}

/// The policy `round_robin`.
pub fn round_robin() -> TypedExtensionConfig {
    extension("round_robin", &RoundRobin::default())
}

/// The policy `pick_first`, without shuffling.
pub fn pick_first() -> TypedExtensionConfig {
    extension("pick_first", &PickFirst::default())
}

/// The policy `ring_hash` with ring sizes in this range.
pub fn ring_hash(sizes: std::ops::RangeInclusive<u64>) -> TypedExtensionConfig {
    let config = RingHash {
        hash_function: HashFunction::XxHash.into(),
        minimum_ring_size: Some(UInt64Value { value: *sizes.start() }),
        maximum_ring_size: Some(UInt64Value { value: *sizes.end() }),
        ..Default::default()
    };
    extension("ring_hash", &config)
}

/// The policy `least_request` with this many choices per pick.
pub fn least_request(choices: u32) -> TypedExtensionConfig {
    let config = LeastRequest { choice_count: Some(UInt32Value { value: choices }), ..Default::default() };
    extension("least_request", &config)
}

/// The policy `client_side_weighted_round_robin` without a blackout period, with weights that are updated this often.
/// Other fields are set on the message.
pub fn weighted_round_robin(update_period: Duration) -> ClientSideWeightedRoundRobin {
    ClientSideWeightedRoundRobin {
        blackout_period: Some(duration(Duration::ZERO)),
        weight_update_period: Some(duration(update_period)),
        ..Default::default()
    }
}

/// The policy `wrr_locality` with this child policy.
pub fn wrr_locality(child: TypedExtensionConfig) -> TypedExtensionConfig {
    extension("wrr_locality", &WrrLocality { endpoint_picking_policy: Some(one_policy(child)) })
}

/// A policy of the application with this name and configuration, a JSON object, in an `xds.type.v3.TypedStruct` (gRFC
/// A52).
pub fn custom_policy(name: &str, config: &serde_json::Value) -> TypedExtensionConfig {
    let typed = TypedStruct {
        type_url: format!("type.googleapis.com/{name}"),
        value: match protobuf_value(config).kind {
            Some(Kind::StructValue(fields)) => Some(fields),
            _ => None,
        },
    };
    extension(name, &typed)
}

/// `xds.type.v3.TypedStruct`, which envoy-types does not have.
#[derive(Clone, PartialEq, prost::Message)]
struct TypedStruct {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Struct>,
}

impl Name for TypedStruct {
    const PACKAGE: &'static str = "xds.type.v3";
    const NAME: &'static str = "TypedStruct";

    fn type_url() -> String {
        "type.googleapis.com/xds.type.v3.TypedStruct".to_owned()
    }
}

fn protobuf_value(json: &serde_json::Value) -> Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(*value),
        // Every number of serde_json has a value as a floating point number.
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(list) => {
            Kind::ListValue(ListValue { values: list.iter().map(protobuf_value).collect() })
        }
        serde_json::Value::Object(fields) => Kind::StructValue(Struct {
            fields: fields.iter().map(|(name, json)| (name.clone(), protobuf_value(json))).collect(),
        }),
    };
    Value { kind: Some(kind) }
}

/// Outlier detection with this interval and ejection time; the algorithms are set on the message.
pub fn outlier_detection(interval: Duration, ejection: Duration) -> OutlierDetection {
    OutlierDetection {
        interval: Some(duration(interval)),
        base_ejection_time: Some(duration(ejection)),
        ..Default::default()
    }
}

/// The algorithms of outlier detection.
pub trait OutlierDetectionExt {
    /// Ejects endpoints that fail more than `threshold` percent of at least `volume` RPCs in an interval, if at least
    /// `hosts` endpoints had that many. Disables the success rate algorithm, which is enabled by default.
    #[must_use]
    fn failure_percentage(self, threshold: u32, hosts: u32, volume: u32) -> Self;
    /// Limits the fraction of ejected endpoints.
    #[must_use]
    fn max_ejection_percent(self, percent: u32) -> Self;
}

impl OutlierDetectionExt for OutlierDetection {
    fn failure_percentage(mut self, threshold: u32, hosts: u32, volume: u32) -> Self {
        self.failure_percentage_threshold = Some(UInt32Value { value: threshold });
        self.failure_percentage_minimum_hosts = Some(UInt32Value { value: hosts });
        self.failure_percentage_request_volume = Some(UInt32Value { value: volume });
        self.enforcing_failure_percentage = Some(UInt32Value { value: 100 });
        self.enforcing_success_rate = Some(UInt32Value { value: 0 });
        self
    }

    fn max_ejection_percent(mut self, percent: u32) -> Self {
        self.max_ejection_percent = Some(UInt32Value { value: percent });
        self
    }
}
