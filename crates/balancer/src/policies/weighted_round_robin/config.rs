//! The configuration of `weighted_round_robin_experimental`.

use std::time::Duration;

use super::policy::WeightedRoundRobin;
use crate::api::{BackendMetrics, Fields};
use crate::policy_config;

pub(super) const NAME: &str = "weighted_round_robin_experimental";

/// A58-05: the shortest time between two calculations of the weights.
const MIN_UPDATE_PERIOD: Duration = Duration::from_millis(100);

/// The configuration of `weighted_round_robin_experimental`.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedRoundRobinConfig {
    /// Whether load is reported out of band, instead of with each call.
    pub enable_oob_load_report: bool,
    /// The interval of out-of-band reports to request.
    pub oob_reporting_period: Duration,
    /// The time for which an endpoint must report before its weight is used.
    pub blackout_period: Duration,
    /// The time after the last report for which a weight is used.
    pub weight_expiration_period: Duration,
    /// The time between two calculations of the weights; at least 100 ms are used.
    pub weight_update_period: Duration,
    /// The factor of the error rate in the utilization; not negative.
    pub error_utilization_penalty: f64,
    /// The metrics whose maximum is the utilization (gRFC A114).
    pub metric_names_for_computing_utilization: Vec<UtilizationMetric>,
}

impl Default for WeightedRoundRobinConfig {
    fn default() -> Self {
        // A58-01, A58-02, A58-03, A58-04, A58-05, A58-06: the defaults.
        Self {
            enable_oob_load_report: false,
            oob_reporting_period: Duration::from_secs(10),
            blackout_period: Duration::from_secs(10),
            weight_expiration_period: Duration::from_secs(180),
            weight_update_period: Duration::from_secs(1),
            error_utilization_penalty: 1.0,
            metric_names_for_computing_utilization: Vec::new(),
        }
    }
}

impl WeightedRoundRobinConfig {
    pub(super) fn update_period(&self) -> Duration {
        self.weight_update_period.max(MIN_UPDATE_PERIOD)
    }

    /// The interval of out-of-band reports, if they are enabled.
    pub(super) fn oob_interval(&self) -> Option<Duration> {
        self.enable_oob_load_report.then_some(self.oob_reporting_period)
    }
}

/// A metric of a load report (gRFC A114).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UtilizationMetric {
    /// `application_utilization`.
    Application,
    /// `cpu_utilization`.
    Cpu,
    /// `mem_utilization`.
    Mem,
    /// `named_metrics.*`, with this key.
    Named(String),
    /// `utilization.*`, with this key.
    Utilization(String),
}

impl UtilizationMetric {
    /// The metric of this name; `None` if the report lacks it.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        // A114-02: the first period ends the name of the map, so keys may contain others.
        Some(match name.split_once('.') {
            Some(("named_metrics", key)) => Self::Named(key.to_owned()),
            Some(("utilization", key)) => Self::Utilization(key.to_owned()),
            None if name == "application_utilization" => Self::Application,
            None if name == "cpu_utilization" => Self::Cpu,
            None if name == "mem_utilization" => Self::Mem,
            _ => return None,
        })
    }

    /// The value in a report, if it has one.
    pub(super) fn of(&self, metrics: &BackendMetrics) -> Option<f64> {
        match self {
            Self::Application => Some(metrics.application_utilization),
            Self::Cpu => Some(metrics.cpu_utilization),
            Self::Mem => Some(metrics.mem_utilization),
            Self::Named(key) => metrics.named_metrics.get(key).copied(),
            Self::Utilization(key) => metrics.utilization.get(key).copied(),
        }
    }
}

policy_config!(WeightedRoundRobinConfig, NAME, WeightedRoundRobin::default(), |config| {
    let seconds = |time: Duration| time.as_secs_f64().into();
    Fields::from_iter([
        ("enableOobLoadReport".to_owned(), config.enable_oob_load_report.into()),
        ("oobReportingPeriod".to_owned(), seconds(config.oob_reporting_period)),
        ("blackoutPeriod".to_owned(), seconds(config.blackout_period)),
        ("weightExpirationPeriod".to_owned(), seconds(config.weight_expiration_period)),
        ("weightUpdatePeriod".to_owned(), seconds(config.weight_update_period)),
        ("errorUtilizationPenalty".to_owned(), config.error_utilization_penalty.into()),
    ])
});
