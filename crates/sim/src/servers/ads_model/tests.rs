//! The model notices violations of the protocol.

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::google::rpc::Status;

use super::*;

const TYPE: ResourceType = ResourceType::Cluster;

/// A stream on which version 1 was read and accepted.
fn model() -> AdsModel {
    let mut model = AdsModel::default();
    model.opened();
    let first = DiscoveryRequest { node: Some(Node::default()), ..request(&["c"], "", "") };
    model.written(&first).expect("the first request");
    model.read(response("1", "a", false)).expect("few are open");
    model.written(&request(&["c"], "1", "a")).expect("the ACK");
    model
}

fn request(names: &[&str], version: &str, nonce: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: TYPE.type_url().into(),
        resource_names: names.iter().map(|&name| name.into()).collect(),
        version_info: version.into(),
        response_nonce: nonce.into(),
        ..Default::default()
    }
}

fn nack(version: &str, nonce: &str) -> DiscoveryRequest {
    let error = Status { code: 3, message: "bad".into(), ..Default::default() };
    DiscoveryRequest { error_detail: Some(error), ..request(&["c"], version, nonce) }
}

fn response(version: &str, nonce: &str, bad: bool) -> Response {
    Response { resource_type: TYPE, version: version.into(), nonce: nonce.into(), bad }
}

#[track_caller]
fn refused(result: Result<(), Violation>, rule: &str) {
    assert_eq!(result.map_err(|violation| violation.rule), Err(rule));
}

#[test]
fn good_exchange_passes() {
    let mut model = model();
    model.written(&request(&["c", "d"], "1", "a")).expect("another name");
    model.read(response("2", "b", true)).expect("few are open");
    model.written(&nack("1", "b")).expect("a NACK keeps the version");
    model.read(response("3", "c", false)).expect("few are open");
    model.written(&request(&[], "3", "c")).expect("an ACK without names");
    model.opened();
    let again = DiscoveryRequest { node: Some(Node::default()), ..request(&["c"], "3", "") };
    model.written(&again).expect("the version outlives the stream");
}

#[test]
fn nack_may_be_left_out_if_the_version_was_nacked_before_and_a_newer_response_came() {
    let mut model = model();
    model.read(response("2", "b", true)).expect("few are open");
    model.written(&nack("1", "b")).expect("a NACK");
    model.read(response("2", "c", true)).expect("few are open");
    model.read(response("2", "d", true)).expect("few are open");
    model.written(&nack("1", "d")).expect("the NACK of c was braked");
    model.read(response("3", "e", true)).expect("few are open");
    model.read(response("4", "f", false)).expect("few are open");
    refused(model.written(&request(&["c"], "4", "f")), "nonces are those of the newest response");
}

#[test]
fn nonce_of_another_stream_is_noticed() {
    let mut model = model();
    model.opened();
    let stale = DiscoveryRequest { node: Some(Node::default()), ..request(&["c"], "1", "a") };
    refused(model.written(&stale), "the first request of a type has no nonce");
}

#[test]
fn wildcard_is_noticed() {
    let mut model = AdsModel::default();
    model.opened();
    let wildcard = DiscoveryRequest { node: Some(Node::default()), ..request(&[], "", "") };
    refused(model.written(&wildcard), "the first request of a type is not a wildcard");
}

#[test]
fn a27_61_missing_or_repeated_node_is_noticed() {
    let mut model = AdsModel::default();
    model.opened();
    refused(model.written(&request(&["c"], "", "")), "the node is in the first request only");
    let again = DiscoveryRequest { node: Some(Node::default()), ..request(&["c"], "", "") };
    refused(model.written(&again), "the node is in the first request only");
}

#[test]
fn nack_that_raises_the_version_is_noticed() {
    let mut model = model();
    model.read(response("2", "b", true)).expect("few are open");
    refused(model.written(&nack("2", "b")), "an ACK has the new version, a NACK the old one");
}

#[test]
fn ack_of_a_bad_response_and_nack_of_a_good_one_are_noticed() {
    for bad in [true, false] {
        let mut model = model();
        model.read(response("2", "b", bad)).expect("few are open");
        let answer = if bad { request(&["c"], "2", "b") } else { nack("1", "b") };
        refused(model.written(&answer), "bad responses are NACKed, good ones are ACKed");
    }
}

#[test]
fn response_without_answer_is_noticed() {
    let mut model = model();
    model.read(response("2", "b", false)).expect("few are open");
    let watched = BTreeSet::from([(TYPE, "c".to_owned())]);
    refused(model.at_rest(&watched), "every response is answered");
    refused(
        model.at_rest(&BTreeSet::from([(TYPE, "d".to_owned())])),
        "exactly the watched resources are requested",
    );
}

#[test]
fn repeated_request_and_skipped_answer_are_noticed() {
    refused(model().written(&request(&["c"], "1", "a")), "requests are not repeated");
    let mut model = model();
    model.read(response("2", "b", false)).expect("few are open");
    model.read(response("3", "c", false)).expect("few are open");
    refused(model.written(&request(&["c"], "3", "c")), "nonces are those of the newest response");
}
