//! One RPC on the data path: route, pick, send, and how it ends.
//!
//! Everything here runs in the caller's task; there is no queue and no lock between the caller and h2.

mod attempt;
mod deadline;
mod options;
mod orca;
mod replay;
mod response;
mod retry;
mod status;

pub(crate) use attempt::call;
pub use options::WaitForReady;
pub(crate) use replay::RequestBody;
pub use response::XdsBody;
