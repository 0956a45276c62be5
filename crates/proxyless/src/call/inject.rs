//! Injects the faults of an RPC's route (gRFC A33), once per RPC, before its first attempt.

use std::pin::pin;

use proxyless_balancer::api::Code;
use proxyless_mesh::route_table::Fault;
use tonic::Status;

use super::rpc::Call;
use super::status;
use super::timer::Timer;
use super::waiting::Waiting;
use crate::targets;

impl Call<'_> {
    /// Delays the RPC, and returns the status of an abort.
    pub(super) async fn inject(&mut self, faults: Box<[Fault]>) -> Result<(), Status> {
        let published = &self.shared.published;
        for fault in faults {
            // A33-03: beyond the limit the RPC passes without a fault.
            let Some(_active) = published.faults.begin(&fault) else { continue };
            tracing::debug!(
                target: targets::FAULT, filter = %fault.filter, delay = ?fault.delay, abort = ?fault.abort,
                "injecting a fault"
            );
            // A33-01: nothing is sent before the delay has ended; it counts into the deadline.
            if let Some(delay) = fault.delay {
                let timer = Timer::after(delay, &self.shared.calls.runtime);
                let ended = self.until(pin!(timer), Waiting::InjectedDelay { filter: &fault.filter }).await;
                ended.inspect_err(|_| published.unsent.failed())?;
            }
            // A33-02: an abort ends unary and streaming RPCs before anything is sent.
            if let Some(code) = fault.abort {
                published.faults.aborted();
                // A33-12: with OK, as if the server had sent trailers with OK.
                match code {
                    Code::Ok => published.unsent.succeeded(),
                    _ => published.unsent.failed(),
                }
                let message = format!("aborted by the fault filter {:?}", fault.filter);
                return Err(Status::new(status::to_tonic(code), message));
            }
        }
        Ok(())
    }
}
