//! One stream of out-of-band load reports (gRFC A51) on a connection of the data plane.
//!
//! The core says when it is opened and closed; this sends the request and passes the reports on.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderValue, Request, Version};
use prost::Message as _;
use proxyless_balancer::tree::LoadEvent;
use proxyless_sans_io::values::Code;
use proxyless_transport::grpc::{self, MessageReader};
use proxyless_xds::orca::{OrcaLoadReport, OrcaLoadReportRequest};
use tokio::time::sleep;

use super::connection::DataConnection;
use crate::call::{RequestBody, backend_metrics};
use crate::user_agent;

const METHOD: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";

/// The longest report that is read, which has room for thousands of named metrics.
const MAX_REPORT: usize = 1 << 20;

/// The shortest pause between two reports.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// The parts of the request that the connection does not know.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) authority: Authority,
    pub(super) scheme: http::uri::Scheme,
}

/// Requests reports at this interval and passes them to `event` until the stream ends, which is the last event.
pub(super) async fn run(
    connection: &DataConnection,
    origin: Origin,
    interval: Duration,
    event: impl Fn(LoadEvent),
) {
    let status = match read(connection, origin, interval, &event).await {
        Ok(()) => grpc::Status::new(Code::Ok, "the server ended the stream"),
        Err(status) => status,
    };
    event(LoadEvent::Ended { code: status.code, reason: status.to_string() });
}

async fn read(
    connection: &DataConnection,
    origin: Origin,
    interval: Duration,
    event: impl Fn(LoadEvent),
) -> Result<(), grpc::Status> {
    let sent = connection.send(request(origin, interval)).await;
    let response = sent.map_err(|error| grpc::Status::new(Code::Unavailable, error.to_string()))?;
    let mut reports = MessageReader::new(response, MAX_REPORT)?;
    while let Some(message) = reports.next().await? {
        let report = OrcaLoadReport::decode(message)
            .map_err(|error| grpc::Status::new(Code::Internal, format!("not a load report: {error}")))?;
        event(LoadEvent::Report(Arc::new(backend_metrics(report))));
        // A server that sends more often than requested is slowed down by flow control: its reports must not fill the
        // channel's queue.
        sleep((interval / 2).max(MIN_PAUSE)).await;
    }
    Ok(())
}

fn request(origin: Origin, interval: Duration) -> Request<RequestBody> {
    let message = OrcaLoadReportRequest::new(interval).encode_to_vec();
    let mut request = Request::new(RequestBody::whole(grpc::frame(&message)));
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = Version::HTTP_2;
    let uri = http::Uri::builder().scheme(origin.scheme).authority(origin.authority).path_and_query(METHOD);
    // Scheme, authority and path always form a URI.
    *request.uri_mut() = uri.build().unwrap_or_default();
    let headers = request.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert("te", HeaderValue::from_static("trailers"));
    headers.insert("user-agent", user_agent::header(None));
    request
}
