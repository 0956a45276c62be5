//! An aggregate cluster (gRFC A37) whose leaves die one after the other, come back, and are reordered by a
//! `ClusterConfig` resource (gRFC A99).

use proxyless_testkit::Resource;
use proxyless_testkit::resources::{
    ClusterExt, aggregate_resource, aggregate_resource_cluster, assignment, eds_cluster, listener, locality,
    logical_dns_cluster, simple_route_config,
};

use super::{Act, Change, Phase, Reported, Scenario};
use crate::demo::mesh::{Group, Mesh};

const EU: Group = Group { name: "eu", size: 3 };
const US: Group = Group { name: "us", size: 3 };
const DNS: Group = Group { name: "dns", size: 1 };

// Connections to dead backends are retried after 1 s, 1.6 s, 2.56 s and so on. Short outages make a short recovery.
pub(super) static SCENARIO: Scenario = Scenario {
    target: "xds:///shop",
    seconds: 20,
    // A99-13
    gates: |gates| gates.aggregate_cluster_resource = true,
    server_id: None,
    groups: &[EU, US, DNS],
    // A37-32: the DNS cluster has no locality.
    reported: &[
        Reported { cluster: "shop-eu", zone: EU.name, groups: &[EU] },
        Reported { cluster: "shop-us", zone: US.name, groups: &[US] },
        Reported { cluster: "shop-dns", zone: "", groups: &[DNS] },
    ],
    resources,
    phases: &[
        Phase { title: "eu, us and dns are up", acts: &[], expect: &[EU], via: &[], share: 4 },
        Phase { title: "eu dies", acts: &[Act::Mesh(Change::Kill(EU))], expect: &[US], via: &[], share: 2 },
        // A37-01
        Phase {
            title: "us dies too",
            acts: &[Act::Mesh(Change::Kill(US))],
            expect: &[DNS],
            via: &[],
            share: 2,
        },
        Phase {
            title: "us and eu come back",
            acts: &[Act::Mesh(Change::Restart(US)), Act::Mesh(Change::Restart(EU))],
            expect: &[EU],
            via: &[US],
            share: 7,
        },
        // A99-12
        Phase {
            title: "the order becomes us, eu, dns",
            acts: &[Act::Mesh(Change::Set(|_| vec![order(["shop-us", "shop-eu", "shop-dns"])]))],
            expect: &[US],
            via: &[],
            share: 5,
        },
    ],
};

fn resources(mesh: &Mesh) -> Vec<Resource> {
    let mut resources = vec![
        listener("shop", "shop-route").into(),
        simple_route_config("shop-route", "shop").into(),
        aggregate_resource_cluster("shop", "shop-order").into(),
        order(["shop-eu", "shop-us", "shop-dns"]),
    ];
    for (cluster, group) in [("shop-eu", EU), ("shop-us", US)] {
        resources.push(eds_cluster(cluster).report_load().into());
        resources.push(assignment(cluster, [locality(group.name, mesh.of(group))]).into());
    }
    let dns = |port| logical_dns_cluster("shop-dns", "localhost", port).report_load().into();
    resources.extend(mesh.of(DNS).map(|backend| dns(backend.address().port())));
    resources
}

/// The leaves of the aggregate, as a separate resource (A99-01).
fn order(clusters: [&str; 3]) -> Resource {
    aggregate_resource("shop-order", clusters)
}
