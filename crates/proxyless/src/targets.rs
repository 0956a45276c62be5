//! The `tracing` targets of this crate: gRPC's tracer names.

pub(crate) const CHANNEL: &str = "channel";
pub(crate) const STATEFUL_SESSION: &str = "stateful_session";
pub(crate) const SUBCHANNEL: &str = "subchannel";
pub(crate) const XDS_CLIENT: &str = "xds_client";
