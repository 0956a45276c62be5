//! HTTP filters on the data path (gRFC A39): they process an RPC between its route and its pick, and its response.

mod fault;
mod stateful_session;

pub(crate) use fault::Faults;
pub(crate) use stateful_session::Session;
