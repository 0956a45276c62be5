//! A store as text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use proxyless::telemetry::{Kind, LabelValue, instruments};

use super::MetricStore;
use super::series::Values;

pub(super) fn encode(store: MetricStore) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(store));
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = text::encode(&mut text, &registry);
    text
}

impl Collector for MetricStore {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in self.families().into_iter().chain(self.gauges()) {
            let instrument = family.instrument;
            // A series for each endpoint would be too much for most servers of metrics.
            if instrument == &instruments::ENDPOINT_DURATION {
                continue;
            }
            let unit = match instrument.unit {
                "s" => Some(Unit::Seconds),
                "By" => Some(Unit::Bytes),
                // Annotations such as `{call}` are not units.
                _ => None,
            };
            let kind = match instrument.kind {
                Kind::Counter => MetricType::Counter,
                Kind::UpDownCounter | Kind::Gauge => MetricType::Gauge,
                Kind::Histogram(_) => MetricType::Histogram,
                _ => MetricType::Unknown,
            };
            let name = underscored(instrument.name);
            let mut metric = encoder.encode_descriptor(&name, instrument.description, unit.as_ref(), kind)?;
            for (labels, values) in &family.series {
                let labels = shown(labels);
                value(&mut metric.encode_family(&labels)?, instrument.kind, values)?;
            }
        }
        Ok(())
    }
}

fn value(metric: &mut MetricEncoder<'_>, kind: Kind, values: &Values) -> fmt::Result {
    match kind {
        Kind::Counter => {
            let sum = u64::try_from(values.sum()).unwrap_or(0);
            metric.encode_counter(&sum, None::<&Exemplar<NoLabelSet, f64>>)
        }
        Kind::UpDownCounter | Kind::Gauge => metric.encode_gauge(&values.sum()),
        Kind::Histogram(_) => {
            let Some((bounds, distribution)) = values.distribution() else { return Ok(()) };
            // The last bucket has no bound.
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(distribution.counts.iter().copied()).collect();
            let count = distribution.counts.iter().sum();
            metric.encode_histogram::<NoLabelSet>(distribution.sum, count, &buckets, None)
        }
        _ => Ok(()),
    }
}

fn shown(labels: &[LabelValue]) -> Vec<(String, String)> {
    labels.iter().map(|(label, value)| (underscored(label.key()), value.to_string())).collect()
}

fn underscored(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use proxyless::telemetry::{Label, Recorder};

    use super::*;

    #[test]
    fn a66_the_text_is_that_of_openmetrics() {
        let store = MetricStore::new();
        let labels = [(Label::Method, "s/M".into()), (Label::Target, "xds:///a\"b".into())];
        store.series(&instruments::ATTEMPT_STARTED, &labels).record(2.0);
        store.series(&instruments::ATTEMPT_STARTED, &labels).record(1.0);
        store.series(&instruments::CALL_DURATION, &labels).record(0.0015);
        let text = store.to_text();
        let line = r#"grpc_client_attempt_started_total{grpc_method="s/M",grpc_target="xds:///a\"b"} 3"#;
        assert!(text.contains(line), "{text}");
        assert!(text.contains("# TYPE grpc_client_call_duration_seconds histogram"), "{text}");
        assert!(text.contains("# UNIT grpc_client_call_duration_seconds seconds"), "{text}");
        let bucket = |bound: &str| {
            let bound = format!("le=\"{bound}\"");
            let of = |line: &&str| {
                line.starts_with("grpc_client_call_duration_seconds_bucket{") && line.contains(&bound)
            };
            text.lines().find(of).unwrap_or_else(|| panic!("{bound}: {text}"))
        };
        assert!(bucket("0.001").ends_with(" 0"));
        assert!(bucket("0.002").ends_with(" 1"));
        assert!(bucket("+Inf").ends_with(" 1"));
        assert!(text.contains("grpc_client_call_duration_seconds_sum"), "{text}");
    }
}
