//! Bounds on the client's memory, whatever a management server sends.

/// Limits on the responses of a management server. Anything above a limit is rejected, with an error that names it.
///
/// The defaults are far above the needs of any mesh, and low enough that a faulty server cannot exhaust memory.
///
/// ```
/// # use proxyless_xds::Limits;
/// let mut limits = Limits::default();
/// limits.message_bytes = 16 << 20;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum length of a message in bytes. A longer one ends the stream. 200 MiB by default.
    pub message_bytes: usize,
    /// The number of resources in a response, errors of resources included. A response with more is rejected as a whole
    /// without being decoded. A response of the load reporting service that names more clusters is ignored. 100,000 by
    /// default.
    pub resources_per_response: usize,
    /// The maximum number of endpoints in a ClusterLoadAssignment, including its localities, additional addresses and
    /// drop categories. 250,000 by default.
    pub endpoints_per_assignment: usize,
    /// The maximum number of routes in a RouteConfiguration, including its virtual hosts, header matchers and weighted
    /// clusters. 100,000 by default.
    pub routes_per_configuration: usize,
    /// The number of elements in lists of a Listener or RouteConfiguration that are not routes: domains, filters,
    /// headers to add, filter chains. Two bytes of such a list take hundreds when decoded. 250,000 by default.
    pub other_elements: usize,
    /// The number of elements in the lists of a Cluster, unused ones included. 10,000 by default.
    pub elements_per_cluster: usize,
    /// The number of clusters below an aggregate cluster whose list is a resource of its own (gRFC A99). Each of them
    /// is subscribed to. 10,000 by default, the same as for an inline list.
    pub clusters_per_aggregate: usize,
    /// The length of a Cluster in bytes. 1 MiB by default.
    pub cluster_bytes: usize,
    /// The maximum compiled size of a regular expression in bytes. 1 MiB by default.
    pub regex_bytes: usize,
    /// The maximum compiled size of all regular expressions of a resource in bytes. 32 MiB by default.
    pub regex_bytes_per_resource: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 200 << 20,
            resources_per_response: 100_000,
            endpoints_per_assignment: 250_000,
            routes_per_configuration: 100_000,
            other_elements: 250_000,
            elements_per_cluster: 10_000,
            clusters_per_aggregate: 10_000,
            cluster_bytes: 1 << 20,
            regex_bytes: 1 << 20,
            regex_bytes_per_resource: 32 << 20,
        }
    }
}
