//! The `tracing` targets of this crate: gRPC's tracer names.

pub(crate) const CDS_LB: &str = "cds_lb";
pub(crate) const XDS_CLIENT: &str = "xds_client";
pub(crate) const XDS_CLUSTER_IMPL_LB: &str = "xds_cluster_impl_lb";
pub(crate) const XDS_CLUSTER_MANAGER_LB: &str = "xds_cluster_manager_lb";
pub(crate) const XDS_OVERRIDE_HOST_LB: &str = "xds_override_host_lb";
pub(crate) const XDS_RESOLVER: &str = "xds_resolver";
pub(crate) const XDS_WRR_LOCALITY_LB: &str = "xds_wrr_locality_lb";
