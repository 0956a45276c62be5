//! The `tracing` targets of this crate: gRPC's tracer names.

pub(crate) const OUTLIER_DETECTION_LB: &str = "outlier_detection_lb";
pub(crate) const PRIORITY_LB: &str = "priority_lb";
pub(crate) const SUBCHANNEL: &str = "subchannel";
pub(crate) const WEIGHTED_TARGET_LB: &str = "weighted_target_lb";
