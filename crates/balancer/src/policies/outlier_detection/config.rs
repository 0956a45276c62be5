//! The configuration of `outlier_detection`.

use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::values::EjectionSettings;
use serde_json::json;

use super::OutlierDetection;
use crate::api::{Fields, Layered, PolicyConfig};
use crate::policy_config;

pub(super) const NAME: &str = "outlier_detection_experimental";

/// The configuration of `outlier_detection`.
#[derive(Clone, Debug)]
pub struct OutlierDetectionConfig {
    /// The detection settings.
    pub detection: Arc<EjectionSettings>,
    /// The child policy.
    pub child: Arc<dyn PolicyConfig>,
}

impl PartialEq for OutlierDetectionConfig {
    fn eq(&self, other: &Self) -> bool {
        self.detection == other.detection && *self.child == *other.child
    }
}

policy_config!(OutlierDetectionConfig, NAME, Layered::<OutlierDetection>::default(), |config| {
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
