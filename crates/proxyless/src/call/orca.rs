//! The metrics that a backend reports in the trailers of a call (ORCA, gRFC A51).

use http::HeaderMap;
use prost::Message as _;
use proxyless_balancer::api::{BackendMetrics, CallTicket};
use proxyless_xds::orca::{OrcaLoadReport, TRAILER};

use super::status;

/// The report in the trailers, if there is a valid one and a tracker uses it.
pub(super) fn metrics(ticket: &CallTicket, trailers: &HeaderMap) -> Option<BackendMetrics> {
    if !ticket.wants_metrics() {
        return None;
    }
    read(trailers.get(TRAILER)?)
}

pub(crate) fn read(value: &http::HeaderValue) -> Option<BackendMetrics> {
    OrcaLoadReport::decode(status::decode_binary(value)?).ok().map(backend_metrics)
}

/// The metrics of a report.
pub(crate) fn backend_metrics(report: OrcaLoadReport) -> BackendMetrics {
    BackendMetrics {
        cpu_utilization: report.cpu_utilization,
        mem_utilization: report.mem_utilization,
        application_utilization: report.application_utilization,
        rps: report.rps_fractional,
        eps: report.eps,
        request_cost: report.request_cost,
        utilization: report.utilization,
        named_metrics: report.named_metrics,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a64_reports_are_read_from_binary_metadata() {
        // named_metrics {"k": 1.0}, with and without padding.
        for text in ["QgwKAWsRAAAAAAAA8D8=", "QgwKAWsRAAAAAAAA8D8"] {
            let metrics = read(&http::HeaderValue::from_static(text)).expect(text);
            assert_eq!(metrics.named_metrics, [("k".to_owned(), 1.0)].into());
        }
        for text in ["not base64!", "QgwKAWsR"] {
            assert_eq!(read(&http::HeaderValue::from_static(text)), None, "{text}");
        }
    }
}
