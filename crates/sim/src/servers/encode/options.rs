//! Encodes the load report, session and outlier detection settings of a cluster.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::google::protobuf::{Duration as WireDuration, UInt32Value};
use proxyless_xds::resource::EjectionSettings;

use super::{health_status, pack};
use crate::script::config::{Cluster, Session};

pub(super) fn set(proto: &mut cluster::Cluster, spec: &Cluster) {
    proto.lrs_server = spec.reports_load.then(|| {
        let specifier = core::config_source::ConfigSourceSpecifier::Self_(core::SelfConfigSource::default());
        core::ConfigSource { config_source_specifier: Some(specifier), ..Default::default() }
    });
    session(proto, &spec.session);
    proto.outlier_detection = spec.outlier_detection.as_ref().map(outlier_detection);
}

fn session(proto: &mut cluster::Cluster, spec: &Session) {
    proto.common_lb_config = spec.override_host_status.as_ref().map(|statuses| {
        let statuses = statuses.iter().map(|&health| health_status(health).into()).collect();
        let override_host_status = Some(core::HealthStatusSet { statuses });
        cluster::cluster::CommonLbConfig { override_host_status, ..Default::default() }
    });
    proto.upstream_config = spec.idle_timeout.map(|idle_timeout| {
        let common =
            core::HttpProtocolOptions { idle_timeout: Some(duration(idle_timeout)), ..Default::default() };
        let options =
            HttpProtocolOptions { common_http_protocol_options: Some(common), ..Default::default() };
        core::TypedExtensionConfig { name: "upstream".into(), typed_config: Some(pack(&options)) }
    });
}

fn outlier_detection(spec: &EjectionSettings) -> cluster::OutlierDetection {
    let number = |value| Some(UInt32Value { value });
    let mut proto = cluster::OutlierDetection {
        interval: Some(duration(spec.interval)),
        base_ejection_time: Some(duration(spec.base_ejection_time)),
        max_ejection_time: Some(duration(spec.max_ejection_time)),
        max_ejection_percent: number(spec.max_ejection_percent),
        enforcing_success_rate: number(0),
        enforcing_failure_percentage: number(0),
        ..Default::default()
    };
    if let Some(success_rate) = &spec.success_rate_ejection {
        proto.enforcing_success_rate = number(success_rate.enforcement_percentage);
        proto.success_rate_stdev_factor = number(success_rate.stdev_factor);
        proto.success_rate_minimum_hosts = number(success_rate.minimum_hosts);
        proto.success_rate_request_volume = number(success_rate.request_volume);
    }
    if let Some(failure_percentage) = &spec.failure_percentage_ejection {
        proto.enforcing_failure_percentage = number(failure_percentage.enforcement_percentage);
        proto.failure_percentage_threshold = number(failure_percentage.threshold);
        proto.failure_percentage_minimum_hosts = number(failure_percentage.minimum_hosts);
        proto.failure_percentage_request_volume = number(failure_percentage.request_volume);
    }
    proto
}

pub(super) fn duration(duration: Duration) -> WireDuration {
    WireDuration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}
