//! The metrics of a channel at `/metrics` of an admin port.

use std::collections::BTreeMap;
use std::future::poll_fn;

use http_body_util::BodyExt as _;
use proxyless::telemetry::{Instrument, Kind};
use proxyless_admin::{Admin, AdminServer, MetricStore};
use tonic::body::Body;
use tower_service::Service as _;

/// An admin port that serves a store.
pub(crate) struct Prometheus(AdminServer);

/// The sum of each sample over its labels, by its name.
pub(crate) struct Scraped(BTreeMap<String, f64>);

impl Prometheus {
    pub(crate) async fn serve(store: &MetricStore) -> Self {
        Self(Admin::default().metrics(store.clone()).serve(0).await.unwrap())
    }

    pub(crate) async fn scrape(&self) -> Scraped {
        let uri = format!("http://{}/metrics", self.0.address());
        let mut channel = tonic::transport::Endpoint::from_shared(uri.clone()).unwrap().connect_lazy();
        poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
        let response = channel.call(http::Request::get(uri).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let mut sums = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = (line.split('{').next().unwrap(), line.rsplit(' ').next().unwrap());
            *sums.entry(name.to_owned()).or_default() += value.parse::<f64>().unwrap();
        }
        Scraped(sums)
    }
}

impl Scraped {
    /// The sum of a counter or gauge, or the number of values in a distribution; `None` if the metric is missing.
    pub(crate) fn value(&self, instrument: &Instrument) -> Option<f64> {
        let name = instrument.name.replace('.', "_");
        let name = match (instrument.kind, instrument.unit) {
            (Kind::Counter, _) => format!("{name}_total"),
            (Kind::Histogram(_), "s") => format!("{name}_seconds_count"),
            (Kind::Histogram(_), "By") => format!("{name}_bytes_count"),
            (Kind::Histogram(_), _) => format!("{name}_count"),
            _ => name,
        };
        self.0.get(&name).copied()
    }
}
