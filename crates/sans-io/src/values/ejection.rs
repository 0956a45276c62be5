//! The settings of outlier detection (gRFC A50): the criteria and duration of ejections.

use std::time::Duration;

/// The settings of outlier detection. By default nothing is ejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectionSettings {
    /// The sweep interval; 10 s by default.
    pub interval: Duration,
    /// The duration of the first ejection; 30 s by default. The n-th in a row lasts n times as long.
    pub base_ejection_time: Duration,
    /// The maximum duration of an ejection, unless `base_ejection_time` is longer; 300 s by default.
    pub max_ejection_time: Duration,
    /// The maximum percentage of ejected endpoints; 10 by default. One may always be ejected.
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
    /// The probability in percent that an outlier is actually ejected; never 0.
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
    /// The probability in percent that an outlier is actually ejected; never 0.
    pub enforcement_percentage: u32,
    /// The minimum number of endpoints with sufficient request volume.
    pub minimum_hosts: u32,
    /// The minimum number of requests of an endpoint in an interval.
    pub request_volume: u32,
}

impl EjectionSettings {
    /// Whether any algorithm is enabled.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.success_rate_ejection.is_some() || self.failure_percentage_ejection.is_some()
    }
}

impl Default for EjectionSettings {
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
