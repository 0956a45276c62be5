//! One cluster with two regions of different priority (gRFC A56); the near one dies and comes back.

use proxyless_testkit::Resource;
use proxyless_testkit::resources::{
    ClusterExt, LocalityExt, assignment, eds_cluster, listener, locality, simple_route_config,
};

use super::{Act, Change, Phase, Reported, Scenario};
use crate::demo::mesh::{Group, Mesh};

const NEAR: Group = Group { name: "near", size: 3 };
const FAR: Group = Group { name: "far", size: 3 };

pub(super) static SCENARIO: Scenario = Scenario {
    target: "xds:///shop",
    seconds: 20,
    gates: |_| {},
    server_id: None,
    groups: &[NEAR, FAR],
    reported: &[
        Reported { cluster: "shop", zone: NEAR.name, groups: &[NEAR] },
        Reported { cluster: "shop", zone: FAR.name, groups: &[FAR] },
    ],
    resources,
    phases: &[
        Phase { title: "both regions are up", acts: &[], expect: &[NEAR], via: &[], share: 4 },
        Phase {
            title: "the near region dies",
            acts: &[Act::Mesh(Change::Kill(NEAR))],
            expect: &[FAR],
            via: &[],
            share: 6,
        },
        Phase {
            title: "it comes back",
            acts: &[Act::Mesh(Change::Restart(NEAR))],
            expect: &[NEAR],
            via: &[],
            share: 10,
        },
    ],
};

fn resources(mesh: &Mesh) -> Vec<Resource> {
    let localities =
        [locality(NEAR.name, mesh.of(NEAR)).priority(0), locality(FAR.name, mesh.of(FAR)).priority(1)];
    vec![
        listener("shop", "shop-route").into(),
        simple_route_config("shop-route", "shop").into(),
        eds_cluster("shop").report_load().into(),
        assignment("shop", localities).into(),
    ]
}
