//! From load reports to weights, on the data path.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use proxyless_sans_io::sync::atomic::{AtomicU64, Ordering};

use super::config::{UtilizationMetric, WeightedRoundRobinConfig};
use crate::api::{BackendMetrics, CallOutcome, CallTracker};

/// The part of the configuration by which a report becomes a weight.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Formula {
    error_utilization_penalty: f64,
    metrics: Vec<UtilizationMetric>,
}

impl Formula {
    pub(super) fn of(config: &WeightedRoundRobinConfig) -> Self {
        Self {
            error_utilization_penalty: config.error_utilization_penalty,
            metrics: config.metric_names_for_computing_utilization.clone(),
        }
    }

    /// The weight of an endpoint with this report; `None` if the report has no utilization or no queries.
    pub(super) fn weight(&self, report: &BackendMetrics) -> Option<f64> {
        let utilization = self.utilization(report);
        if !(is_positive(utilization) && is_positive(report.rps)) {
            return None;
        }
        // A58-18: errors count only with a penalty.
        let errors = if report.eps > 0.0 { report.eps / report.rps } else { 0.0 };
        let weight = report.rps / (utilization + errors * self.error_utilization_penalty);
        is_positive(weight).then_some(weight)
    }

    fn utilization(&self, report: &BackendMetrics) -> f64 {
        // A114-04: the maximum of the configured metrics; A114-05: those that are NaN, zero or negative do not count.
        let configured = self.metrics.iter().filter_map(|metric| metric.of(report));
        let largest = configured.filter(|value| *value > 0.0).fold(0.0, f64::max);
        // A114-06, A58-17: otherwise that of the application, or else of the processor.
        [largest, report.application_utilization, report.cpu_utilization]
            .into_iter()
            .find(|value| *value > 0.0)
            .unwrap_or(0.0)
    }
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// The formula of per-call reports, shared by the endpoints of a policy; `None` while reports come out of band.
pub(super) type PerCall = Arc<ArcSwapOption<Formula>>;

/// Receives the reports of an endpoint's calls. The policy takes the latest weight when it calculates weights, so that
/// calls need no clock and no lock.
pub(super) struct Reports {
    per_call: PerCall,
    /// The bits of the latest weight; 0 if it was taken.
    latest: AtomicU64,
}

impl Reports {
    pub(super) fn new(per_call: &PerCall) -> Arc<Self> {
        Arc::new(Self { per_call: Arc::clone(per_call), latest: AtomicU64::new(0) })
    }

    /// The weight by the latest report since the last call of this method.
    pub(super) fn take(&self) -> Option<f64> {
        // Relaxed throughout: the number orders nothing else.
        match self.latest.swap(0, Ordering::Relaxed) {
            0 => None,
            bits => Some(f64::from_bits(bits)),
        }
    }
}

impl CallTracker for Reports {
    fn started(&self) {}

    fn finished(&self, outcome: &CallOutcome) {
        // A58-22: a call without a report changes nothing.
        if let Some(metrics) = &outcome.metrics
            && let Some(formula) = &*self.per_call.load()
            && let Some(weight) = formula.weight(metrics)
        {
            self.latest.store(weight.to_bits(), Ordering::Relaxed);
        }
    }

    fn withdrawn(&self) {}

    /// A58-23: with out-of-band reports, those of calls are not read.
    fn wants_metrics(&self) -> bool {
        self.per_call.load().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rps: f64, application: f64, cpu: f64, eps: f64) -> BackendMetrics {
        BackendMetrics {
            rps,
            application_utilization: application,
            cpu_utilization: cpu,
            eps,
            ..BackendMetrics::default()
        }
    }

    fn formula(penalty: f64, names: &[&str]) -> Formula {
        let metrics = names.iter().filter_map(|name| UtilizationMetric::parse(name)).collect();
        Formula { error_utilization_penalty: penalty, metrics }
    }

    #[test]
    fn a58_17_the_application_utilization_counts_before_that_of_the_processor() {
        assert_eq!(formula(1.0, &[]).weight(&report(100.0, 0.5, 0.25, 0.0)), Some(200.0));
        assert_eq!(formula(1.0, &[]).weight(&report(100.0, 0.0, 0.25, 0.0)), Some(400.0));
        assert_eq!(formula(1.0, &[]).weight(&report(100.0, -1.0, 0.25, 0.0)), Some(400.0));
    }

    #[test]
    fn a58_18_errors_lower_the_weight_by_the_penalty() {
        assert_eq!(formula(3.0, &[]).weight(&report(100.0, 0.5, 0.0, 50.0)), Some(50.0));
        assert_eq!(formula(0.0, &[]).weight(&report(100.0, 0.5, 0.0, 50.0)), Some(200.0));
        assert_eq!(formula(3.0, &[]).weight(&report(100.0, 0.5, 0.0, -50.0)), Some(200.0));
    }

    #[test]
    fn a58_19_reports_without_utilization_or_queries_give_no_weight() {
        let formula = formula(1.0, &[]);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(formula.weight(&report(bad, 0.5, 0.5, 0.0)), None, "{bad} queries");
            assert_eq!(formula.weight(&report(100.0, 0.0, bad, 0.0)), None, "{bad} utilization");
        }
        assert_eq!(formula.weight(&report(100.0, 0.5, 0.0, f64::NAN)), Some(200.0));
        assert_eq!(formula.weight(&report(100.0, 0.5, 0.0, f64::INFINITY)), None);
    }

    #[test]
    fn a114_02_a114_03_the_supported_names_are_read() {
        let named = |key: &str| Some(UtilizationMetric::Named(key.into()));
        assert_eq!(UtilizationMetric::parse("named_metrics.foo"), named("foo"));
        assert_eq!(UtilizationMetric::parse("named_metrics.foo.bar"), named("foo.bar"));
        let of_resource = UtilizationMetric::parse("utilization.gpu");
        assert_eq!(of_resource, Some(UtilizationMetric::Utilization("gpu".into())));
        assert_eq!(UtilizationMetric::parse("application_utilization"), Some(UtilizationMetric::Application));
        assert_eq!(UtilizationMetric::parse("cpu_utilization"), Some(UtilizationMetric::Cpu));
        assert_eq!(UtilizationMetric::parse("mem_utilization"), Some(UtilizationMetric::Mem));
        for unknown in ["", "rps_fractional", "named_metrics", "request_cost.foo", "cpu_utilization.x"] {
            assert_eq!(UtilizationMetric::parse(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a114_04_the_largest_configured_metric_counts() {
        let mut metrics = report(100.0, 0.9, 0.8, 0.0);
        metrics.named_metrics = [("foo".to_owned(), 0.25), ("bar".to_owned(), 0.5)].into();
        metrics.utilization = [("gpu".to_owned(), 0.1)].into();
        let names = ["named_metrics.foo", "named_metrics.bar", "utilization.gpu", "named_metrics.absent"];
        assert_eq!(formula(1.0, &names).weight(&metrics), Some(200.0));
        assert_eq!(formula(1.0, &["utilization.gpu"]).weight(&metrics), Some(1000.0));
        metrics.mem_utilization = 0.2;
        assert_eq!(formula(1.0, &["mem_utilization"]).weight(&metrics), Some(500.0));
    }

    #[test]
    fn a114_05_a114_06_values_that_are_not_positive_count_as_absent() {
        for bad in [f64::NAN, 0.0, -3.0] {
            let mut metrics = report(100.0, 0.5, 0.8, 0.0);
            metrics.named_metrics = [("foo".to_owned(), bad), ("bar".to_owned(), 0.25)].into();
            let names = ["named_metrics.foo", "named_metrics.bar"];
            assert_eq!(formula(1.0, &names).weight(&metrics), Some(400.0));
            assert_eq!(formula(1.0, &["named_metrics.foo"]).weight(&metrics), Some(200.0), "{bad}");
        }
    }
}
