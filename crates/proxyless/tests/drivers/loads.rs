//! Load reports, on the same connection as ADS and with the same faults.

use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsResponse;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;

use proxyless_testkit::resources::duration;

use crate::grpc::{Messages, begin, framed, trailers};
use crate::plane::{Manner, Plane};

pub(crate) const PATH: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

/// The report interval that clients are told.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
const UNAVAILABLE: u16 = 14;

/// Serves one stream.
pub(crate) async fn serve(
    plane: &Plane,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let stream = plane.load_stream();
    let mut responses = begin(&mut respond)?;
    let mut reports = Messages::new(request.into_body());
    let mut changed = plane.changes();
    let mut answered = false;
    loop {
        match plane.manner() {
            Manner::Refuse => return responses.send_trailers(trailers(UNAVAILABLE)),
            Manner::EndAfterResponse if answered => return responses.send_trailers(trailers(0)),
            _ => {}
        }
        tokio::select! {
            biased;
            report = reports.next(), if plane.manner() != Manner::Deaf => {
                if report.is_none() {
                    return Ok(());
                }
                // The first message of a stream has only the node.
                if answered {
                    stream.note_report();
                }
            }
            _ = changed.changed() => {}
        }
        if !answered && plane.manner() != Manner::Mute {
            answered = true;
            let interval = Some(duration(INTERVAL));
            let response = LoadStatsResponse {
                send_all_clusters: true,
                load_reporting_interval: interval,
                ..Default::default()
            };
            responses.send_data(framed(&response), false)?;
        }
    }
}
