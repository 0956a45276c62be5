//! The health of an endpoint, as set by the control plane.

use std::fmt;

/// The health of a usable endpoint, as set by the control plane. Endpoints with any other health are not used
/// (A27-100).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)] // the names are xDS's own
pub enum EndpointHealth {
    #[default]
    Unknown,
    Healthy,
    /// Used for sessions only (gRFC A55, A75); never passed to the policies that pick.
    Draining,
}

impl fmt::Display for EndpointHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "UNKNOWN",
            Self::Healthy => "HEALTHY",
            Self::Draining => "DRAINING",
        })
    }
}
