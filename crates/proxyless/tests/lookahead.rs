//! The client requests what a resource names before the channel does.

mod common;

use std::collections::BTreeSet;

use common::*;
use proxyless::{ClientPool, XdsChannel};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, ControlPlane, EDS, LDS, RDS};

/// A control plane and a backend on a runtime of their own, and a runtime that runs only within `block_on`.
struct Bed {
    servers: tokio::runtime::Runtime,
    home: tokio::runtime::Runtime,
    backend: Backend,
    plane: ControlPlane,
}

impl Bed {
    fn new() -> std::io::Result<Self> {
        let servers = tokio::runtime::Runtime::new()?;
        let home = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let backend = servers.block_on(Backend::start("a"))?;
        let plane = servers.block_on(mesh(&[&backend]));
        Ok(Self { servers, home, backend, plane })
    }

    /// The channel's task runs until the Listener is requested, and then not any more.
    fn channel_that_waits_for_its_listener(&self, pool: &ClientPool) -> XdsChannel {
        self.home.block_on(async {
            let builder = XdsChannel::builder(&format!("xds:///{SERVICE}")).bootstrap(bootstrap(&self.plane));
            let channel = builder.client_pool(pool.clone()).build().unwrap();
            let ready = channel.clone();
            tokio::spawn(async move { ready.ready().await });
            self.plane.wait_subscriptions(LDS, &[SERVICE]).await.unwrap();
            channel
        })
    }

    /// The names in each request of a type, without repetitions.
    fn requested(&self, type_url: &str) -> Vec<Vec<String>> {
        let requests = self.plane.requests();
        let of_type = requests.iter().filter(|request| request.type_url() == type_url);
        let mut names: Vec<_> = of_type.map(|request| request.names().to_vec()).collect();
        names.dedup();
        names
    }
}

#[test]
fn the_routes_of_a_listener_are_requested_before_the_channel_has_seen_it() -> TestResult {
    let bed = Bed::new()?;
    bed.plane.withhold(LDS);
    let channel = bed.channel_that_waits_for_its_listener(&ClientPool::new());
    bed.plane.release(LDS);
    bed.servers.block_on(bed.plane.wait_subscriptions(RDS, &["route"]))?;
    assert_eq!(bed.plane.subscriptions(CDS), BTreeSet::new());
    // The channel has the same watches, so nothing was requested twice and nothing given up.
    assert_eq!(bed.home.block_on(ask(&channel))?, "a");
    for (type_url, name) in [(LDS, SERVICE), (RDS, "route"), (CDS, "cluster"), (EDS, "cluster")] {
        assert_eq!(bed.requested(type_url), [[name]], "{type_url}");
    }
    Ok(())
}

#[test]
fn inline_routes_name_the_clusters_of_the_virtual_host_in_use() -> TestResult {
    let bed = Bed::new()?;
    let host = virtual_host([SERVICE], [route_for("b", "b"), route("cluster")]);
    let other = virtual_host(["other.example"], [route("other")]);
    bed.plane.set(listener(SERVICE, route_config("inline", [other, host])));
    bed.plane.withhold(LDS);
    let _channel = bed.channel_that_waits_for_its_listener(&ClientPool::new());
    bed.plane.release(LDS);
    bed.servers.block_on(bed.plane.wait_subscriptions(CDS, &["b", "cluster"]))?;
    assert_eq!(bed.requested(CDS), [["b", "cluster"]]);
    Ok(())
}

/// The channel may want less by then, or be gone: what was requested for it is given up.
#[test]
fn a_channel_that_has_gone_leaves_nothing_behind() -> TestResult {
    let bed = Bed::new()?;
    bed.plane.withhold(LDS);
    let pool = ClientPool::new();
    let channel = bed.channel_that_waits_for_its_listener(&pool);
    // Another channel keeps the client.
    let live = bed.servers.block_on(async {
        let builder = XdsChannel::builder("xds:///other.example").bootstrap(bootstrap(&bed.plane));
        builder.client_pool(pool).build().unwrap()
    });
    bed.plane.set_all([
        listener("other.example", "other-route").into(),
        simple_route_config("other-route", "cluster").into(),
    ]);
    bed.plane.release(LDS);
    bed.servers.block_on(bed.plane.wait_subscriptions(RDS, &["route"]))?;
    drop(channel);
    drop(bed.home);
    assert_eq!(bed.servers.block_on(ask(&live))?, "a");
    bed.servers.block_on(bed.plane.wait_subscriptions(RDS, &["other-route"]))?;
    drop(bed.backend);
    Ok(())
}
