//! The configuration of weighted_round_robin (gRFC A58, A114): `ClientSideWeightedRoundRobin`, and its JSON form.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::load_balancing_policies::client_side_weighted_round_robin::v3 as wire;
use envoy_types::pb::google::protobuf;
use envoy_types::pb::google::protobuf::Struct;
use envoy_types::pb::google::protobuf::value::Kind;

use super::common::duration;
use super::extension;
use super::field::Field;
use super::lb_config::LbPolicy;
use super::lb_json::kind;

/// The configuration of weighted_round_robin; absent fields are `None`, for which the policy has defaults.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WeightedRoundRobin {
    /// Whether load is reported out of band.
    pub enable_oob_load_report: Option<bool>,
    /// The interval of out-of-band reports.
    pub oob_reporting_period: Option<Duration>,
    /// The time for which an endpoint must report before its weight is used.
    pub blackout_period: Option<Duration>,
    /// The time after the last report for which a weight is used.
    pub weight_expiration_period: Option<Duration>,
    /// The time between two calculations of the weights.
    pub weight_update_period: Option<Duration>,
    /// The factor of the error rate in the utilization; not negative.
    pub error_utilization_penalty: Option<f32>,
    /// The metrics whose maximum is the utilization.
    pub metric_names_for_computing_utilization: Vec<String>,
}

pub(super) fn read(at: &Field<'_>, value: &[u8], _depth: usize) -> Option<LbPolicy> {
    let proto: wire::ClientSideWeightedRoundRobin = extension::decode(at, value)?;
    let span = |name, proto: Option<&protobuf::Duration>| {
        // An invalid one is recorded as a violation.
        proto.and_then(|proto| duration(&at.field(name), proto))
    };
    let penalty = proto.error_utilization_penalty.map(|penalty| penalty.value);
    check_penalty(&at.field("error_utilization_penalty"), penalty);
    Some(LbPolicy::WeightedRoundRobin(Box::new(WeightedRoundRobin {
        enable_oob_load_report: proto.enable_oob_load_report.map(|enabled| enabled.value),
        oob_reporting_period: span("oob_reporting_period", proto.oob_reporting_period.as_ref()),
        blackout_period: span("blackout_period", proto.blackout_period.as_ref()),
        weight_expiration_period: span("weight_expiration_period", proto.weight_expiration_period.as_ref()),
        weight_update_period: span("weight_update_period", proto.weight_update_period.as_ref()),
        error_utilization_penalty: penalty,
        metric_names_for_computing_utilization: proto.metric_names_for_computing_utilization,
    })))
}

/// A58-06: a negative penalty is rejected, and so is one that is not a number.
fn check_penalty(at: &Field<'_>, penalty: Option<f32>) {
    if let Some(penalty) = penalty.filter(|penalty| !(penalty.is_finite() && *penalty >= 0.0)) {
        at.reject(format!("{penalty} is negative or not a number"));
    }
}

pub(super) fn read_json(at: &Field<'_>, json: &Struct, _depth: usize) -> Option<LbPolicy> {
    let enable_oob_load_report = match kind(json, "enableOobLoadReport") {
        None => None,
        Some(Kind::BoolValue(value)) => Some(*value),
        Some(_) => return at.key("enableOobLoadReport").fail("must be a bool"),
    };
    let error_utilization_penalty = match kind(json, "errorUtilizationPenalty") {
        None => None,
        Some(Kind::NumberValue(value)) => Some(*value as f32),
        Some(_) => return at.key("errorUtilizationPenalty").fail("must be a number"),
    };
    check_penalty(&at.key("errorUtilizationPenalty"), error_utilization_penalty);
    Some(LbPolicy::WeightedRoundRobin(Box::new(WeightedRoundRobin {
        enable_oob_load_report,
        oob_reporting_period: json_span(at, json, "oobReportingPeriod"),
        blackout_period: json_span(at, json, "blackoutPeriod"),
        weight_expiration_period: json_span(at, json, "weightExpirationPeriod"),
        weight_update_period: json_span(at, json, "weightUpdatePeriod"),
        error_utilization_penalty,
        metric_names_for_computing_utilization: json_names(at, json)?,
    })))
}

/// A duration in proto JSON: a number of seconds with the suffix `s`.
fn json_span(at: &Field<'_>, json: &Struct, name: &str) -> Option<Duration> {
    let span = match kind(json, name)? {
        Kind::StringValue(text) => text
            .strip_suffix('s')
            .and_then(|seconds| seconds.parse::<f64>().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        _ => None,
    };
    if span.is_none() {
        at.key(name).reject("must be a duration that is not negative, like 1.5s");
    }
    span
}

fn json_names(at: &Field<'_>, json: &Struct) -> Option<Vec<String>> {
    const NAME: &str = "metricNamesForComputingUtilization";
    let Some(names) = kind(json, NAME) else { return Some(Vec::new()) };
    let Kind::ListValue(names) = names else { return at.key(NAME).fail("must be a list") };
    let name = |value: &protobuf::Value| match &value.kind {
        Some(Kind::StringValue(name)) => Some(name.clone()),
        _ => None,
    };
    match names.values.iter().map(name).collect() {
        Some(names) => Some(names),
        None => at.key(NAME).fail("must be a list of strings"),
    }
}
