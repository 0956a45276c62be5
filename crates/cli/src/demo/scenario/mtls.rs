//! Mutual TLS (gRFC A29): all certificates rotate under load, and backends that present the identity of another service
//! are refused, so that RPCs go to the other endpoints, and then to the next priority.

use proxyless_testkit::Resource;
use proxyless_testkit::resources::{
    ClusterExt, LocalityExt, UpstreamTlsExt, assignment, eds_cluster, listener, locality,
    simple_route_config, upstream_tls,
};

use super::{Act, Change, Phase, Reported, Scenario};
use crate::demo::certificates::INSTANCE;
use crate::demo::mesh::{Group, Mesh};

const NEAR: Group = Group { name: "near", size: 2 };
/// At the same priority as `NEAR`.
const ODD: Group = Group { name: "odd", size: 1 };
const FAR: Group = Group { name: "far", size: 2 };

const SERVER_ID: &str = "spiffe://demo.example/shop";

pub(super) static SCENARIO: Scenario = Scenario {
    target: "xds:///shop",
    seconds: 16,
    gates: |_| {},
    server_id: Some(SERVER_ID),
    groups: &[NEAR, ODD, FAR],
    reported: &[
        Reported { cluster: "shop", zone: NEAR.name, groups: &[NEAR, ODD] },
        Reported { cluster: "shop", zone: FAR.name, groups: &[FAR] },
    ],
    resources,
    phases: &[
        Phase {
            title: "all backends are reached by mTLS",
            acts: &[],
            expect: &[NEAR, ODD],
            via: &[],
            share: 3,
        },
        Phase {
            title: "all certificates rotate",
            acts: &[Act::Mesh(Change::RotateCertificates)],
            expect: &[NEAR, ODD],
            via: &[],
            share: 3,
        },
        Phase {
            title: "odd presents a wrong identity",
            acts: &[Act::Mesh(Change::Impersonate(ODD))],
            expect: &[NEAR],
            via: &[],
            share: 3,
        },
        Phase {
            title: "near presents a wrong identity too",
            acts: &[Act::Mesh(Change::Impersonate(NEAR))],
            expect: &[FAR],
            via: &[],
            share: 3,
        },
        // Connections to refused backends are retried after 1 s, 1.6 s and so on.
        Phase {
            title: "both present their own identity again",
            acts: &[Act::Mesh(Change::Identify(NEAR)), Act::Mesh(Change::Identify(ODD))],
            expect: &[NEAR, ODD],
            via: &[],
            share: 4,
        },
    ],
};

fn resources(mesh: &Mesh) -> Vec<Resource> {
    let localities = [
        locality(NEAR.name, mesh.of(NEAR).chain(mesh.of(ODD))).priority(0),
        locality(FAR.name, mesh.of(FAR)).priority(1),
    ];
    let tls = upstream_tls(INSTANCE).identity(INSTANCE).server_name(SERVER_ID);
    vec![
        listener("shop", "shop-route").into(),
        simple_route_config("shop-route", "shop").into(),
        eds_cluster("shop").tls(tls).report_load().into(),
        assignment("shop", localities).into(),
    ]
}
