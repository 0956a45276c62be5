//! A description of the channel: its routes and its policy tree.

use std::fmt;

use proxyless_balancer::api::{CallCounts, ConnectivityState, Line, PolicyView};
use proxyless_xds::resource::{ClusterSpecifier, Route, VirtualHost};
use serde::{Deserialize, Serialize};

use crate::words::Words;

/// The configuration in use by one channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TreeView {
    /// The Listener of the channel.
    pub listener: String,
    /// The channel's state.
    pub state: ConnectivityState,
    /// The error of RPCs, if there is no usable configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The virtual host in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_host: Option<String>,
    /// The routes; the first match applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteView>,
    /// The policies; `None` before the first configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<PolicyView>,
    /// The calls that ended on a connection of the channel.
    pub calls: CallCounts,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RouteView {
    /// Its name, if it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The condition, as text.
    pub matches: String,
    /// The destinations; empty if RPCs fail.
    pub clusters: Vec<ClusterShare>,
}

/// A cluster and its weight in a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClusterShare {
    /// The cluster, a child of xds_cluster_manager.
    pub cluster: String,
    /// Its weight among the clusters of the route.
    pub weight: u32,
}

impl TreeView {
    /// The view of a channel without a configuration, whose RPCs fail with `error`.
    #[doc(hidden)]
    #[must_use]
    pub fn failing(listener: &str, error: String) -> Self {
        let state = ConnectivityState::TransientFailure;
        Self { listener: listener.to_owned(), state, error: Some(error), ..Self::default() }
    }

    pub(super) fn set_routes(&mut self, host: &VirtualHost) {
        self.virtual_host = Some(host.name.clone());
        self.routes = host.routes.iter().map(RouteView::new).collect();
    }
}

impl RouteView {
    fn new(route: &Route) -> Self {
        let share = |name: &str, weight| ClusterShare { cluster: name.to_owned(), weight };
        let clusters = match route.action.as_ref().map(|action| &action.cluster) {
            Some(ClusterSpecifier::Cluster(name)) => vec![share(name, 1)],
            Some(ClusterSpecifier::Weighted(clusters)) => {
                clusters.iter().map(|cluster| share(&cluster.name, cluster.weight)).collect()
            }
            _ => Vec::new(),
        };
        Self { name: route.name.clone(), matches: Words(&route.matcher).to_string(), clusters }
    }
}

impl TreeView {
    /// The whole description as lines of text.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let line = |text: String| Line::hanging("    ", text);
        let mut lines = vec![line(format!("listener {}", self.listener))];
        lines.extend(self.error.iter().map(|error| line(format!("error: {error}"))));
        lines.extend(self.virtual_host.iter().map(|host| line(format!("virtual host {host}"))));
        lines.extend(self.routes.iter().map(|route| line(format!("  {route}"))));
        lines.extend(self.root.iter().flat_map(PolicyView::lines));
        if self.root.is_none() && self.state == ConnectivityState::Idle {
            lines.push(line("not in use: no watches, no connections; the next RPC connects".to_owned()));
        }
        lines
    }
}

impl fmt::Display for TreeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for RouteView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} →", self.matches)?;
        if self.clusters.is_empty() {
            write!(f, " fails")?;
        }
        for (at, ClusterShare { cluster, weight }) in self.clusters.iter().enumerate() {
            match self.clusters.len() {
                1 => write!(f, " {cluster}")?,
                _ => write!(f, "{} {cluster} (weight {weight})", if at > 0 { "," } else { "" })?,
            }
        }
        Ok(())
    }
}
