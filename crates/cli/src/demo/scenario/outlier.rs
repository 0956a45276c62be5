//! One of several backends starts to fail its RPCs: outlier detection (gRFC A50) ejects it, and returns it when the
//! ejection ends.

use std::time::Duration;

use proxyless_testkit::Resource;
use proxyless_testkit::resources::{
    ClusterExt, OutlierDetectionExt, assignment, eds_cluster, listener, locality, outlier_detection,
    simple_route_config,
};

use super::{Act, Change, Phase, Reported, Scenario};
use crate::demo::mesh::{Group, Mesh};

const GOOD: Group = Group { name: "good", size: 3 };
const FLAKY: Group = Group { name: "flaky", size: 1 };

/// The sweep interval.
const INTERVAL: Duration = Duration::from_millis(500);

/// The duration of the first ejection: longer than the phase in which the backend fails.
const EJECTION: Duration = Duration::from_secs(4);

pub(super) static SCENARIO: Scenario = Scenario {
    target: "xds:///shop",
    seconds: 12,
    gates: |_| {},
    server_id: None,
    groups: &[GOOD, FLAKY],
    reported: &[Reported { cluster: "shop", zone: "zone", groups: &[GOOD, FLAKY] }],
    resources,
    phases: &[
        Phase { title: "all is well", acts: &[], expect: &[GOOD, FLAKY], via: &[], share: 3 },
        Phase {
            title: "flaky fails its RPCs and is ejected",
            acts: &[Act::Mesh(Change::Fail(FLAKY))],
            expect: &[GOOD],
            via: &[],
            share: 3,
        },
        Phase {
            title: "flaky recovers and comes back",
            acts: &[Act::Mesh(Change::Recover(FLAKY))],
            expect: &[GOOD, FLAKY],
            via: &[],
            share: 6,
        },
    ],
};

fn resources(mesh: &Mesh) -> Vec<Resource> {
    let detection =
        outlier_detection(INTERVAL, EJECTION).failure_percentage(50, 3, 3).max_ejection_percent(50);
    let endpoints = locality("zone", mesh.of(GOOD).chain(mesh.of(FLAKY)));
    vec![
        listener("shop", "shop-route").into(),
        simple_route_config("shop-route", "shop").into(),
        eds_cluster("shop").outlier_detection(detection).report_load().into(),
        assignment("shop", [endpoints]).into(),
    ]
}
