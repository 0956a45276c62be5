//! The `tracing` targets of this crate: gRPC's tracer names.

pub(crate) const XDS_CLIENT: &str = "xds_client";
