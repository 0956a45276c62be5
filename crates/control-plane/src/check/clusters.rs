//! Warnings about listeners and endpoints that are valid but of little use.

use proxyless_xds::resource::{HttpFilterConfig, ListenerKind, Resource};

use super::Subject;

pub(super) fn warn(resource: &Resource, subject: &mut Subject) {
    match resource {
        Resource::Listener(listener) => match &listener.kind {
            ListenerKind::Socket => {
                subject.warn("", "has no api_listener: gRPC servers and Envoy use it, channels do not");
            }
            ListenerKind::Api(manager) => {
                for filter in manager.filters.iter() {
                    if let HttpFilterConfig::Ignored { type_url } = &filter.config {
                        let message =
                            format!("the filter {:?} ({type_url}) has no effect in clients", filter.name);
                        subject.warn("", message);
                    }
                }
            }
        },
        Resource::ClusterLoadAssignment(assignment) => {
            let count = |priority: &Vec<proxyless_xds::resource::LocalityEndpoints>| {
                priority.iter().map(|locality| locality.endpoints.len()).sum::<usize>()
            };
            if assignment.priorities.iter().map(count).sum::<usize>() == 0 {
                subject.warn("endpoints", "no endpoint can serve: all RPCs of the cluster fail");
            } else {
                for (priority, localities) in assignment.priorities.iter().enumerate() {
                    if count(localities) == 0 {
                        subject
                            .warn("endpoints", format!("priority {priority} has no endpoint that can serve"));
                    }
                }
            }
            for drop in &assignment.drops {
                if drop.per_million >= 1_000_000 {
                    subject.warn("policy.drop_overloads", format!("{:?} drops all RPCs", drop.category));
                }
            }
        }
        Resource::Cluster(cluster) => {
            if cluster.circuit_breakers.max_requests == 0 {
                subject.warn("circuit_breakers", "max_requests is zero: all RPCs of the cluster fail");
            }
        }
        Resource::RouteConfiguration(_) | Resource::AggregateClusterConfig(_) => {}
    }
}
