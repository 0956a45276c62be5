//! Private parts that fuzz targets call. Not part of the API.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use proxyless_balancer::api::{ActualHost, BackendMetrics};
use proxyless_mesh::route_table::Selection;
use proxyless_sans_io::Time;

/// The report in the ORCA trailer of a call.
pub fn orca_trailer(value: &HeaderValue) -> Option<BackendMetrics> {
    crate::call::read_orca(value)
}

/// The session of one RPC.
pub struct Session(crate::filters::Session);

impl Session {
    /// The session of an RPC to this path, if its route has sessions for it.
    pub fn begin(selection: &Selection<'_>, path: &str, headers: &HeaderMap) -> Option<Self> {
        crate::filters::Session::begin(selection, path, headers).map(Self)
    }

    /// The name of the cluster to use.
    pub fn cluster(&self) -> &str {
        self.0.cluster().name()
    }

    /// The addresses in its cookie.
    pub fn addresses(&self) -> Arc<[SocketAddr]> {
        self.0.override_host(Time::ZERO, None).cookie_addresses
    }

    /// Puts a new cookie into the headers of the answer, if it needs one.
    pub fn answered(&self, actual: &ActualHost, headers: &mut HeaderMap) {
        self.0.answered(actual, headers);
    }
}
