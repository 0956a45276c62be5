//! Responses in an order that a good server does not use.

use envoy_types::pb::google::protobuf::Any;
use proxyless_testkit::resources::*;
use proxyless_testkit::{AGGREGATE, CDS, EDS, LDS, RDS, Resource};

use super::common::SERVICE;
use super::exchange::response;
use super::hostile::Attack;
use super::memory::unmeasured;
use super::world::{World, starts_after};

/// On one stream, with and without waiting for ACKs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_out_of_order() {
    let _shared = unmeasured().await;
    let world = World::configured(|builder| builder).await;
    let resources: Vec<Any> = world.resources().iter().map(|resource| resource.value().clone()).collect();
    let hostile = world.attack(Attack::streams(move |mut exchange| {
        let [lds, rds, cds, eds] = resources.clone().try_into().expect("four");
        async move {
            exchange.begin(&[]);
            exchange.request().await;
            let mut same_nonce = response(RDS, "90", vec![rds.clone()]);
            same_nonce.nonce = "100".into();
            let mut no_nonce = response(EDS, "1", vec![eds.clone()]);
            no_nonce.nonce = String::new();
            let other = Resource::from(priorities(
                "other",
                [["127.0.0.1:1".parse::<std::net::SocketAddr>().expect("an address")]],
            ));
            let responses = [
                // In reverse order, and back to old versions.
                response(EDS, "100", vec![eds.clone()]),
                response(EDS, "7", vec![eds.clone()]),
                response(CDS, "100", vec![cds.clone()]),
                response(RDS, "100", vec![rds.clone()]),
                same_nonce.clone(),
                same_nonce,
                response(LDS, "100", vec![lds.clone()]),
                response(LDS, "", vec![lds.clone()]),
                // The same resource twice in one response, and a different one with its name.
                response(CDS, "101", vec![cds.clone(), cds.clone()]),
                response(EDS, "102", vec![eds.clone(), other.value().clone(), other.value().clone()]),
                no_nonce,
                // These were not requested.
                response(AGGREGATE, "1", vec![cds.clone()]),
                response("type.googleapis.com/envoy.config.core.v3.Node", "1", Vec::new()),
                response("", "", Vec::new()),
                response(RDS, "103", Vec::new()),
                response(EDS, "104", Vec::new()),
                // A different type than declared.
                response(EDS, "105", vec![cds.clone()]),
                response(LDS, "106", vec![rds.clone()]),
                // A wrapper around nothing.
                response(
                    CDS,
                    "107",
                    vec![Any {
                        type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".into(),
                        value: Vec::new(),
                    }],
                ),
                response(LDS, "last", vec![lds]),
            ];
            for response in &responses {
                exchange.respond(response).await;
            }
            exchange.answer_to("last").await;
            exchange.log.done();
            // Even after all trailers: h2 does not let that through.
            exchange.end("0");
            exchange.respond(&responses[0]).await;
            exchange.given_up().await;
        }
    }));
    let seen = hostile.wait("the last response is accepted", |seen| seen.done >= 1).await;
    assert_eq!(seen.nacks, 3, "{:?}", seen.why);
    for (why, part) in
        seen.why.iter().zip(["resource 0", "resource 0", "must be set in the Resource wrapper"])
    {
        assert!(why.contains(part), "{why}");
    }
    world.recovers("responses out of order", hostile).await;
}

/// Endpoints, clusters and routes arrive before they are requested, and the listener last of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_before_requests() {
    let _shared = unmeasured().await;
    let attack = Attack::streams(|mut exchange| async move {
        exchange.begin(&[]);
        let eds =
            priorities("cluster", [["127.0.0.1:1".parse::<std::net::SocketAddr>().expect("an address")]]);
        let resources = [
            Resource::from(eds),
            eds_cluster("cluster").into(),
            simple_route_config("route", "cluster").into(),
            listener(SERVICE, "route").into(),
        ];
        for (i, resource) in resources.iter().enumerate() {
            let version = i.to_string();
            exchange.respond(&response(resource.type_url(), &version, vec![resource.value().clone()])).await;
        }
        exchange.answer_to("3").await;
        exchange.log.done();
        exchange.given_up().await;
    });
    starts_after("responses before requests", attack, |seen| seen.done >= 1).await;
}
