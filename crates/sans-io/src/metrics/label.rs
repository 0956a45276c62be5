//! The labels of the standard metrics.

use std::sync::Arc;

/// A label of a metric; OpenTelemetry calls it an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Label {
    /// The target of the channel (A66).
    Target,
    /// The method, `package.Service/Method`, or `other` (A66).
    Method,
    /// The name of the status code (A66).
    Status,
    /// The locality of the endpoints (A78); empty if they have none.
    Locality,
    /// The leaf cluster (A89).
    BackendService,
    /// The algorithm that detected an outlier (A91).
    DetectionMethod,
    /// The reason why an outlier was not ejected (A91).
    UnenforcedReason,
    /// The reason for the end of a connection (A94).
    DisconnectError,
    /// The security of a connection (A94).
    SecurityLevel,
    /// The URI of a management server (A78).
    XdsServer,
    /// The authority of a resource's name, `#old` for names that are not `xdstp:` (A78).
    XdsAuthority,
    /// The state of a cached resource (A78, A88).
    XdsCacheState,
    /// The type of a resource, without the prefix of its URL (A78).
    XdsResourceType,
    /// The address of an endpoint.
    Endpoint,
}

impl Label {
    /// The name of the label, with dots.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Target => "grpc.target",
            Self::Method => "grpc.method",
            Self::Status => "grpc.status",
            Self::Locality => "grpc.lb.locality",
            Self::BackendService => "grpc.lb.backend_service",
            Self::DetectionMethod => "grpc.lb.outlier_detection.detection_method",
            Self::UnenforcedReason => "grpc.lb.outlier_detection.unenforced_reason",
            Self::DisconnectError => "grpc.disconnect_error",
            Self::SecurityLevel => "grpc.security_level",
            Self::XdsServer => "grpc.xds.server",
            Self::XdsAuthority => "grpc.xds.authority",
            Self::XdsCacheState => "grpc.xds.cache_state",
            Self::XdsResourceType => "grpc.xds.resource_type",
            Self::Endpoint => "proxyless.endpoint",
        }
    }
}

/// A label with its value.
pub type LabelValue = (Label, Arc<str>);
