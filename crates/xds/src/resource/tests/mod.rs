//! Good messages, then one mutation per rule: the path and the text of the violation are checked.

mod any;
mod builders;
mod cluster;
mod endpoint;
mod endpoint_differential;
mod endpoint_model;
mod fault;
mod filter;
mod fuzz;
mod http_connect;
mod lb_config;
mod lb_custom;
mod listener;
mod matcher;
mod outlier_detection;
mod route;
mod route_action;
mod stateful_session;
mod upstream_tls;
mod wire_tree;

use std::sync::Arc;

use prost::{Message, Name};

use super::{DecodeContext, Resource, ResourceType, decode};
use crate::Gates;

/// Decodes a message of a resource type with every gate closed.
fn decode_message<M: Message + Name>(message: &M) -> Result<Resource, Vec<(String, String)>> {
    decode_message_with(message, &DecodeContext::default())
}

fn decode_message_with<M: Message + Name>(
    message: &M,
    cx: &DecodeContext,
) -> Result<Resource, Vec<(String, String)>> {
    let expected = ResourceType::from_type_url(&M::type_url()).expect("a resource type");
    let decoded = decode(expected, expected.type_url(), &message.encode_to_vec(), cx);
    decoded.resource.map_err(|found| found.first.into_iter().map(|one| (one.path, one.why)).collect())
}

/// The message breaks exactly one rule: at this path, with a text that contains this.
#[track_caller]
fn rejects<M: Message + Name>(message: &M, path: &str, why: &str) {
    rejects_with(message, &DecodeContext::default(), path, why);
}

#[track_caller]
fn rejects_with<M: Message + Name>(message: &M, cx: &DecodeContext, path: &str, why: &str) {
    let found = decode_message_with(message, cx).expect_err("the resource should be rejected");
    match &found[..] {
        [(found_path, found_why)] => {
            assert_eq!(found_path, path, "{found_why}");
            assert!(found_why.contains(why), "{found_why:?} should contain {why:?}");
        }
        found => panic!("one violation expected: {found:?}"),
    }
}

#[track_caller]
fn accepts<M: Message + Name>(message: &M) -> Resource {
    decode_message(message).expect("the resource should be accepted")
}

fn gates(open: impl FnOnce(&mut Gates)) -> DecodeContext {
    let mut cx = DecodeContext::default();
    open(&mut cx.gates);
    cx
}

/// Unwraps the resource of one type.
macro_rules! unwrap_as {
    ($function:ident, $kind:ident) => {
        fn $function(resource: Resource) -> Arc<super::$kind> {
            match resource {
                Resource::$kind(resource) => resource,
                other => panic!("not a {}: {other:?}", stringify!($kind)),
            }
        }
    };
}

unwrap_as!(as_listener, Listener);
unwrap_as!(as_routes, RouteConfiguration);
unwrap_as!(as_cluster, Cluster);
unwrap_as!(as_assignment, ClusterLoadAssignment);
