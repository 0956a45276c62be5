//! The configuration of `outlier_detection`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::OutlierDetection;
use crate::api::{Fields, PolicyConfig};
use crate::policy_config;

pub(super) const NAME: &str = "outlier_detection_experimental";

/// The configuration of `outlier_detection`.
#[derive(Clone, Debug)]
pub struct OutlierDetectionConfig {
    /// The detection settings.
    pub detection: Detection,
    /// The child policy.
    pub child: Arc<dyn PolicyConfig>,
}

/// The detection settings. By default nothing is ejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detection {
    /// The sweep interval.
    pub interval: Duration,
    /// The duration of the first ejection; the n-th in a row lasts n times as long.
    pub base_ejection_time: Duration,
    /// The maximum duration of an ejection, unless `base_ejection_time` is longer.
    pub max_ejection_time: Duration,
    /// The maximum percentage of ejected endpoints; one may always be ejected.
    pub max_ejection_percent: u32,
    /// Ejects endpoints with a success rate far below the mean; `None`: disabled.
    pub success_rate_ejection: Option<SuccessRateEjection>,
    /// Ejects endpoints above a fixed failure percentage; `None`: disabled.
    pub failure_percentage_ejection: Option<FailurePercentageEjection>,
}

/// Ejection by comparison with the other endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessRateEjection {
    /// The number of standard deviations below the mean, in thousandths, at which an endpoint is ejected.
    pub stdev_factor: u32,
    /// The probability in percent that an outlier is actually ejected.
    pub enforcement_percentage: u32,
    /// The minimum number of endpoints with sufficient request volume.
    pub minimum_hosts: u32,
    /// The minimum number of requests of an endpoint in an interval.
    pub request_volume: u32,
}

/// Ejection by a fixed threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePercentageEjection {
    /// The failure percentage above which an endpoint is ejected.
    pub threshold: u32,
    /// The probability in percent that an outlier is actually ejected.
    pub enforcement_percentage: u32,
    /// The minimum number of endpoints with sufficient request volume.
    pub minimum_hosts: u32,
    /// The minimum number of requests of an endpoint in an interval.
    pub request_volume: u32,
}

impl Detection {
    /// Whether any algorithm is enabled; otherwise calls are not counted.
    pub(super) fn is_on(&self) -> bool {
        self.success_rate_ejection.is_some() || self.failure_percentage_ejection.is_some()
    }

    /// The duration of the `multiplier`-th ejection in a row.
    pub(super) fn ejection_time(&self, multiplier: u32) -> Duration {
        // A50: it grows with each ejection, up to the maximum, which is never below the base.
        let longest = self.base_ejection_time.max(self.max_ejection_time);
        self.base_ejection_time.saturating_mul(multiplier).min(longest)
    }
}

impl Default for Detection {
    /// A50: the gRFC's defaults, without an algorithm.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            base_ejection_time: Duration::from_secs(30),
            max_ejection_time: Duration::from_secs(300),
            max_ejection_percent: 10,
            success_rate_ejection: None,
            failure_percentage_ejection: None,
        }
    }
}

impl PartialEq for OutlierDetectionConfig {
    fn eq(&self, other: &Self) -> bool {
        self.detection == other.detection && *self.child == *other.child
    }
}

policy_config!(OutlierDetectionConfig, NAME, OutlierDetection::default(), |config| {
    let detection = &config.detection;
    let seconds = |duration: Duration| json!(format!("{}s", duration.as_secs_f64()));
    let mut fields = Fields::from_iter([
        ("interval".to_owned(), seconds(detection.interval)),
        ("baseEjectionTime".to_owned(), seconds(detection.base_ejection_time)),
        ("maxEjectionTime".to_owned(), seconds(detection.max_ejection_time)),
        ("maxEjectionPercent".to_owned(), detection.max_ejection_percent.into()),
    ]);
    if let Some(ejection) = &detection.success_rate_ejection {
        let value = json!({
            "stdevFactor": ejection.stdev_factor,
            "enforcementPercentage": ejection.enforcement_percentage,
            "minimumHosts": ejection.minimum_hosts,
            "requestVolume": ejection.request_volume,
        });
        fields.insert("successRateEjection".to_owned(), value);
    }
    if let Some(ejection) = &detection.failure_percentage_ejection {
        let value = json!({
            "threshold": ejection.threshold,
            "enforcementPercentage": ejection.enforcement_percentage,
            "minimumHosts": ejection.minimum_hosts,
            "requestVolume": ejection.request_volume,
        });
        fields.insert("failurePercentageEjection".to_owned(), value);
    }
    fields
});
