//! The `tracing` targets of this crate: gRPC's tracer names.

pub(crate) const CHANNEL: &str = "channel";
/// A filter without a tracer in gRPC.
pub(crate) const FAULT: &str = "fault_injection_filter";
pub(crate) const STATEFUL_SESSION: &str = "stateful_session";
pub(crate) const SUBCHANNEL: &str = "subchannel";
pub(crate) const XDS_CLIENT: &str = "xds_client";
