//! One RPC on the data path: route, pick, send, and its end.
//!
//! Everything here runs in the caller's task. RPCs queue only while no stream is free; the only lock in this module is
//! that of a streaming request's replay buffer.

mod attempt;
mod deadline;
mod inject;
mod messages;
mod options;
mod orca;
mod peer;
mod pick;
mod replay;
mod request;
mod response;
mod response_kind;
mod retry;
mod rpc;
mod settings;
mod status;
mod telemetry;
mod throttle;
mod timer;
mod traces;
mod transparent;
mod waiting;

pub use options::WaitForReady;
pub(crate) use orca::backend_metrics;
#[cfg(feature = "fuzzing")]
pub(crate) use orca::read as read_orca;
pub use peer::PeerAddress;
pub(crate) use pick::attributes;
pub(crate) use replay::RequestBody;
pub use response::XdsBody;
pub(crate) use rpc::call;
pub(crate) use settings::{CallSettings, PolicyRetries, RetryOptions};
