//! [`RouteTable`]: from the path and headers of an RPC to its cluster (the ConfigSelector of gRFC A31; A28 matches).
//!
//! Built once per configuration, then shared with the data path: selecting takes no lock and does not allocate, unless
//! a request has several values of a header.

mod active_faults;
mod destinations;
mod entry;
mod explain;
mod faults;
mod hash;
mod headers;
mod sessions;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_balancer::api::{Code, PickError};
use proxyless_sans_io::Rng;
use proxyless_xds::resource::{CookieSession, HttpFilter, MILLION, PathMatcher, Route, VirtualHost};

pub use self::active_faults::ActiveFaults;
use self::destinations::{Claims, Destination, Destinations, FilterSource};
pub use self::entry::RouteEntry;
pub use self::explain::RouteVerdict;
pub use self::faults::{Fault, FaultFilter};
pub use self::hash::ChannelHash;
use self::headers::CompiledHeader;
use crate::cluster_claim::{ClusterClaim, TableClaim};

/// The compiled routes of a virtual host.
#[derive(Debug)]
pub struct RouteTable {
    virtual_host: Arc<str>,
    routes: Vec<CompiledRoute>,
    clusters: Vec<Arc<TableClaim>>,
}

/// The destination of an RPC.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// The cluster, for all attempts of the RPC. A clone keeps the cluster alive (gRFC A31).
    pub cluster: &'a Arc<TableClaim>,
    /// The other settings of the route.
    pub route: &'a Arc<RouteEntry>,
    /// The session cookie of the route, if it has sessions (gRFC A55).
    pub session: Option<&'a Arc<CookieSession>>,
    /// The fault filters of the route that may inject a fault, in order (gRFC A33).
    pub faults: &'a [FaultFilter],
    destinations: &'a Destinations,
}

impl<'a> Selection<'a> {
    /// The cluster of this name, if it is in the route, with any weight: a session may select it (gRFC A60).
    #[must_use]
    pub fn cluster_named(&self, name: &str) -> Option<&'a Arc<TableClaim>> {
        self.destinations.named(name)
    }
}

/// The reason why an RPC has no destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// A28: no route matches.
    #[error("no route of virtual host {virtual_host:?} matches {path:?}")]
    NoMatch {
        /// The RPC's path.
        path: String,
        /// The virtual host.
        virtual_host: Arc<str>,
    },
    /// A36: the matching route does not forward.
    #[error(
        "route {route:?} of virtual host {virtual_host:?} matches {path:?} but does not forward to a cluster"
    )]
    NotForwarding {
        /// The RPC's path.
        path: String,
        /// The virtual host.
        virtual_host: Arc<str>,
        /// The route's name.
        route: Arc<str>,
    },
}

impl From<RouteError> for PickError {
    /// A28: UNAVAILABLE, with the details.
    fn from(error: RouteError) -> Self {
        Self { code: Code::Unavailable, message: error.to_string() }
    }
}

impl RouteTable {
    /// Compiles the routes of `virtual_host`.
    ///
    /// `max_stream_duration` (gRFC A31) and `filters` (gRFC A39) are the listener's. `claim_cluster` is called
    /// once for each cluster in a route, including those of weight zero.
    #[must_use]
    pub fn new(
        virtual_host: &VirtualHost,
        max_stream_duration: Option<Duration>,
        filters: &[HttpFilter],
        claim_cluster: impl FnMut(&Arc<str>) -> Arc<ClusterClaim>,
    ) -> Self {
        let mut claims = Claims::new(claim_cluster);
        let compile = |route: &Route| {
            let source = FilterSource { filters, route: &route.filter_overrides, virtual_host };
            CompiledRoute::new(route, &source, max_stream_duration, &mut claims)
        };
        let routes = virtual_host.routes.iter().map(compile).collect();
        Self { virtual_host: virtual_host.name.as_str().into(), routes, clusters: claims.into_clusters() }
    }

    /// Every cluster in a route, once each, in route order.
    #[must_use]
    pub fn clusters(&self) -> &[Arc<TableClaim>] {
        &self.clusters
    }

    /// Finds the route of an RPC, and one of its clusters.
    ///
    /// # Errors
    /// If no route matches, or the matching one has no cluster.
    pub fn select(
        &self,
        path: &str,
        headers: &HeaderMap,
        rng: &mut Rng,
    ) -> Result<Selection<'_>, RouteError> {
        self.find(path, headers, rng, |_, _| {})
    }

    /// As [`Self::select`]; `passed` is told each route that does not match, and the reason.
    fn find(
        &self,
        path: &str,
        headers: &HeaderMap,
        rng: &mut Rng,
        mut passed: impl FnMut(&CompiledRoute, Mismatch<'_>),
    ) -> Result<Selection<'_>, RouteError> {
        // A28: the first match wins.
        let found = self.routes.iter().find(|route| match route.mismatch(path, headers, rng) {
            None => true,
            Some(why) => {
                passed(route, why);
                false
            }
        });
        match found.map(|route| &route.action) {
            Some(Action::Forward { route, destinations }) => {
                let Destination { cluster, session, faults } = destinations.choose(rng);
                Ok(Selection { cluster, route, session: session.as_ref(), faults, destinations })
            }
            Some(Action::None { name }) => Err(RouteError::NotForwarding {
                path: path.to_owned(),
                virtual_host: Arc::clone(&self.virtual_host),
                route: Arc::clone(name),
            }),
            None => Err(RouteError::NoMatch {
                path: path.to_owned(),
                virtual_host: Arc::clone(&self.virtual_host),
            }),
        }
    }
}

#[derive(Debug)]
struct CompiledRoute {
    path: PathMatcher,
    headers: Box<[CompiledHeader]>,
    /// The fraction of RPCs that match, in millionths; `None`: all.
    fraction: Option<u32>,
    action: Action,
}

/// The reason why a route does not match an RPC.
#[derive(Clone, Copy)]
enum Mismatch<'a> {
    Path,
    /// The first header that does not match.
    Header(&'a CompiledHeader),
    /// The draw; the fraction is in millionths.
    Fraction(u32),
}

#[derive(Debug)]
enum Action {
    Forward { route: Arc<RouteEntry>, destinations: Destinations },
    None { name: Arc<str> },
}

impl CompiledRoute {
    fn new<F: FnMut(&Arc<str>) -> Arc<ClusterClaim>>(
        route: &Route,
        source: &FilterSource<'_>,
        max_stream_duration: Option<Duration>,
        claims: &mut Claims<F>,
    ) -> Self {
        let forward = route.action.as_ref().and_then(|action| {
            let destinations = Destinations::new(&action.cluster, source, claims)?;
            let entry = RouteEntry::new(action, source.virtual_host, max_stream_duration);
            Some(Action::Forward { route: Arc::new(entry), destinations })
        });
        Self {
            path: route.matcher.path.clone(),
            headers: route.matcher.headers.iter().map(CompiledHeader::new).collect(),
            fraction: route.matcher.fraction_per_million.filter(|&n| n < MILLION),
            action: forward.unwrap_or_else(|| Action::None { name: route.name.as_str().into() }),
        }
    }

    /// The reason why the route does not match an RPC; `None` if it does.
    #[inline]
    fn mismatch(&self, path: &str, headers: &HeaderMap, rng: &mut Rng) -> Option<Mismatch<'_>> {
        if !self.path.matches(path) {
            return Some(Mismatch::Path);
        }
        if let Some(header) = self.headers.iter().find(|header| !header.matches(headers)) {
            return Some(Mismatch::Header(header));
        }
        match self.fraction {
            Some(share) if rng.below(u64::from(MILLION)) >= u64::from(share) => {
                Some(Mismatch::Fraction(share))
            }
            _ => None,
        }
    }
}
