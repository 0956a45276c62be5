//! The state of LRS: the server's request, the open streams, and all reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf::Duration as WireDuration;
use prost::Message;
use tokio::sync::mpsc;

use super::load::LoadReport;
use super::state::Outgoing;

#[derive(Debug)]
pub(crate) struct LoadState {
    pub(crate) interval: Duration,
    /// The requested clusters; all of them by default.
    pub(crate) clusters: Option<Vec<String>>,
    pub(crate) reports: Vec<Arc<LoadReport>>,
    pub(crate) streams_opened: u64,
    streams: BTreeMap<u64, mpsc::UnboundedSender<Outgoing>>,
}

impl Default for LoadState {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            clusters: None,
            reports: Vec::new(),
            streams_opened: 0,
            streams: BTreeMap::new(),
        }
    }
}

impl LoadState {
    pub(crate) fn open(&mut self) -> (u64, mpsc::UnboundedReceiver<Outgoing>) {
        self.streams_opened += 1;
        let (outbox, inbox) = mpsc::unbounded_channel();
        self.streams.insert(self.streams_opened, outbox);
        (self.streams_opened, inbox)
    }

    pub(crate) fn close(&mut self, stream: u64) {
        self.streams.remove(&stream);
    }

    pub(crate) fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Answers the first request of a stream with the server's request.
    pub(crate) fn on_request(&mut self, stream: u64, message: LoadStatsRequest) {
        let is_first = !self.reports.iter().any(|report| report.stream() == stream);
        self.reports.push(Arc::new(LoadReport::new(stream, message)));
        if let Some(outbox) = self.streams.get(&stream).filter(|_| is_first) {
            // A closed outbox means that the stream has just ended.
            let _ = outbox.send(self.request());
        }
    }

    /// Sends the server's request to every stream.
    pub(crate) fn send_request_to_all(&self) {
        self.send(&self.request());
    }

    /// Sends this on every stream.
    pub(crate) fn send(&self, outgoing: &Outgoing) {
        for outbox in self.streams.values() {
            let _ = outbox.send(outgoing.clone());
        }
    }

    fn request(&self) -> Outgoing {
        let response = LoadStatsResponse {
            clusters: self.clusters.clone().unwrap_or_default(),
            send_all_clusters: self.clusters.is_none(),
            load_reporting_interval: Some(WireDuration {
                seconds: self.interval.as_secs().try_into().unwrap_or(i64::MAX),
                // `subsec_nanos` is below a billion.
                nanos: self.interval.subsec_nanos().cast_signed(),
            }),
            report_endpoint_granularity: false,
        };
        Ok(Some(response.encode_to_vec().into()))
    }
}
