//! Metrics as the SDK has exported them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use opentelemetry::KeyValue;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
use proxyless::telemetry::{Instrument, Kind};

use super::TARGET;

/// The families of one collection, by name.
pub(crate) struct Exported(BTreeMap<String, Family>);

/// A metric with all its points.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) scope: (String, Option<String>),
    pub(crate) description: String,
    pub(crate) unit: String,
    pub(crate) shape: Shape,
    pub(crate) points: Vec<Point>,
}

/// The kind of a metric and the type of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    Counter,
    UpDownCounter,
    Gauge,
    RealHistogram,
    WholeHistogram,
    Other,
}

/// The values with one set of labels.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) bounds: Vec<f64>,
    /// Of a distribution.
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl Exported {
    pub(super) fn new(collected: &[ResourceMetrics]) -> Self {
        let mut families = BTreeMap::new();
        for scope in collected.iter().flat_map(ResourceMetrics::scope_metrics) {
            for metric in scope.metrics() {
                let (shape, points) = match metric.data() {
                    AggregatedMetrics::U64(data) => points(data, |value| value as f64, Shape::WholeHistogram),
                    AggregatedMetrics::I64(data) => points(data, |value| value as f64, Shape::Other),
                    AggregatedMetrics::F64(data) => points(data, |value| value, Shape::RealHistogram),
                };
                let labels: BTreeSet<_> = points.iter().map(|point| &point.labels).collect();
                assert_eq!(labels.len(), points.len(), "{} has labels twice", metric.name());
                let family = Family {
                    scope: (scope.scope().name().to_owned(), scope.scope().version().map(str::to_owned)),
                    description: metric.description().to_owned(),
                    unit: metric.unit().to_owned(),
                    shape,
                    points,
                };
                let before = families.insert(metric.name().to_owned(), family);
                assert!(before.is_none(), "{} is there twice", metric.name());
            }
        }
        Self(families)
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    pub(crate) fn family(&self, name: &str) -> &Family {
        self.0.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.names()))
    }

    /// The sum over the points of a metric that have these labels; 0 if there are none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.points(name, labels).map(|point| point.sum).sum()
    }

    /// As [`Self::sum`], of the number of values in distributions.
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.points(name, labels).map(|point| point.count).sum()
    }

    fn points<'a>(&'a self, name: &str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Point> {
        let points = self.0.get(name).into_iter().flat_map(|family| &family.points);
        points.filter(|point| {
            labels.iter().all(|(key, value)| point.labels.get(*key).is_some_and(|other| other == value))
        })
    }
}

impl fmt::Debug for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, family) in &self.0 {
            for Point { labels, count, sum, .. } in &family.points {
                writeln!(f, "{name} {labels:?} {count} {sum}")?;
            }
        }
        Ok(())
    }
}

impl Family {
    /// A metric is as the catalogue describes it, with these optional labels.
    pub(crate) fn check(&self, instrument: &Instrument, optional: &BTreeSet<&str>) {
        let name = instrument.name;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        assert_eq!(self.scope, ("proxyless".to_owned(), Some(version)), "{name}");
        assert_eq!((&*self.unit, &*self.description), (instrument.unit, instrument.description), "{name}");
        let (shape, bounds) = match instrument.kind {
            Kind::Counter => (Shape::Counter, &[][..]),
            Kind::UpDownCounter => (Shape::UpDownCounter, &[][..]),
            Kind::Histogram(bounds) if matches!(instrument.unit, "s" | "{weight}") => {
                (Shape::RealHistogram, bounds)
            }
            Kind::Histogram(bounds) => (Shape::WholeHistogram, bounds),
            _ => (Shape::Gauge, &[][..]),
        };
        assert_eq!(self.shape, shape, "{name}");
        let optional = instrument.optional_labels.iter().filter(|label| optional.contains(label.key()));
        let keys: BTreeSet<_> = instrument.labels.iter().chain(optional).map(|label| label.key()).collect();
        assert!(!self.points.is_empty(), "{name} has no values");
        for point in &self.points {
            assert_eq!(point.labels.keys().map(String::as_str).collect::<BTreeSet<_>>(), keys, "{name}");
            assert_eq!(point.labels["grpc.target"], TARGET, "{name}");
            assert_eq!(point.bounds, bounds, "{name}");
            assert!(point.count > 0 && point.sum >= 0.0, "{name}: {point:?}");
        }
    }
}

fn points<T: Copy>(data: &MetricData<T>, number: impl Fn(T) -> f64, histogram: Shape) -> (Shape, Vec<Point>) {
    let single = |labels, value| Point { labels, bounds: Vec::new(), count: 1, sum: number(value) };
    match data {
        MetricData::Sum(sum) => {
            let shape = if sum.is_monotonic() { Shape::Counter } else { Shape::UpDownCounter };
            (
                shape,
                sum.data_points().map(|point| single(labels(point.attributes()), point.value())).collect(),
            )
        }
        MetricData::Gauge(gauge) => {
            let points = gauge.data_points().map(|point| single(labels(point.attributes()), point.value()));
            (Shape::Gauge, points.collect())
        }
        MetricData::Histogram(distribution) => {
            let points = distribution.data_points().map(|point| Point {
                labels: labels(point.attributes()),
                bounds: point.bounds().collect(),
                count: point.count(),
                sum: number(point.sum()),
            });
            (histogram, points.collect())
        }
        MetricData::ExponentialHistogram(_) => (Shape::Other, Vec::new()),
    }
}

fn labels<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> BTreeMap<String, String> {
    attributes.map(|it| (it.key.to_string(), it.value.to_string())).collect()
}
