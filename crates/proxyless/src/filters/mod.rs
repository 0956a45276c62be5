//! HTTP filters on the data path (gRFC A39): they process an RPC between its route and its pick, and its response.

mod stateful_session;

pub(crate) use stateful_session::Session;
