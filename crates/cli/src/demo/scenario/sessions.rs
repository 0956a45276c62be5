//! Users with cookies (gRFC A55) on hosts that move to a lower priority, move back, and die (gRFC A75): sessions stay
//! while their hosts live, whereas RPCs without a session follow the priorities.

use proxyless_testkit::Resource;
use proxyless_testkit::resources::{
    ClusterExt, ConnectionManagerExt, LocalityExt, assignment, connection_manager, eds_cluster,
    listener_with, locality, simple_route_config, stateful_session,
};

use super::{Act, Change, Phase, Reported, Scenario};
use crate::demo::mesh::{Group, Mesh};

const OLD: Group = Group { name: "old", size: 3 };
const NEW: Group = Group { name: "new", size: 3 };

pub(super) static SCENARIO: Scenario = Scenario {
    target: "xds:///shop",
    seconds: 12,
    gates: |_| {},
    server_id: None,
    groups: &[OLD, NEW],
    reported: &[
        Reported { cluster: "shop", zone: OLD.name, groups: &[OLD] },
        Reported { cluster: "shop", zone: NEW.name, groups: &[NEW] },
    ],
    resources,
    phases: &[
        Phase { title: "3 users log in", acts: &[Act::LogIn(3)], expect: &[OLD], via: &[], share: 3 },
        // A75-18
        Phase {
            title: "old falls lower, 2 more users log in",
            acts: &[Act::Mesh(Change::Set(|mesh| vec![endpoints(mesh, [NEW, OLD])])), Act::LogIn(2)],
            expect: &[NEW],
            via: &[],
            share: 3,
        },
        Phase {
            title: "old rises again",
            acts: &[Act::Mesh(Change::Set(|mesh| vec![endpoints(mesh, [OLD, NEW])]))],
            expect: &[OLD],
            via: &[],
            share: 3,
        },
        // A75-52
        Phase {
            title: "old dies",
            acts: &[Act::Mesh(Change::Kill(OLD))],
            expect: &[NEW],
            via: &[],
            share: 3,
        },
    ],
};

fn resources(mesh: &Mesh) -> Vec<Resource> {
    vec![
        listener_with("shop", &connection_manager("shop-route").filter(stateful_session("user"))).into(),
        simple_route_config("shop-route", "shop").into(),
        eds_cluster("shop").report_load().into(),
        endpoints(mesh, [OLD, NEW]),
    ]
}

/// The groups as localities, in descending priority.
fn endpoints(mesh: &Mesh, groups: [Group; 2]) -> Resource {
    let localities =
        (0..).zip(groups).map(|(priority, group)| locality(group.name, mesh.of(group)).priority(priority));
    assignment("shop", localities).into()
}
