//! Endpoints without those that are DRAINING.

use proxyless_balancer::api::{Endpoint, Endpoints, Group, HealthStatus};

/// A75-20: the child never sees DRAINING endpoints, whatever override_host_status says. What has none stays the same
/// slice in memory.
pub(super) fn without_draining(endpoints: &Endpoints) -> Endpoints {
    if !has_draining(endpoints) {
        return endpoints.clone();
    }
    match endpoints {
        Endpoints::List(list) => {
            Endpoints::List(list.iter().filter(|endpoint| !is_draining(endpoint)).cloned().collect())
        }
        Endpoints::Groups(groups) => {
            let filtered =
                |group: &Group| Group { endpoints: without_draining(&group.endpoints), ..group.clone() };
            Endpoints::Groups(groups.iter().map(filtered).collect())
        }
    }
}

fn has_draining(endpoints: &Endpoints) -> bool {
    let mut found = false;
    endpoints.flatten(&mut |endpoint| found |= is_draining(endpoint));
    found
}

fn is_draining(endpoint: &Endpoint) -> bool {
    endpoint.health == HealthStatus::Draining
}
