//! HTTP filters on the data path (gRFC A39): what they do to an RPC between its route and its pick, and to its answer.

mod stateful_session;

pub(crate) use stateful_session::Session;
