//! The `tracing` targets of this crate: gRPC's tracer names.

#[cfg(feature = "dns")]
pub(crate) const DNS_RESOLVER: &str = "dns_resolver";
pub(crate) const SUBCHANNEL: &str = "subchannel";
