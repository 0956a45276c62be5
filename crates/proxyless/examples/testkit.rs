//! Tests of failure handling with proxyless-testkit: `cargo test -p proxyless --example testkit`.
//!
//! The application is [`Shop`]. Its tests run against a control plane and backends inside the test process, on loopback
//! ports; failures are injected, and every wait observes state instead of sleeping. `cargo run -p proxyless --example
//! testkit` plays the first test.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use proxyless::{Bootstrap, BuildError, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest, EchoServer};
use proxyless_testkit::resources::{eds_cluster, listener, priorities, simple_route_config};
use proxyless_testkit::{Backend, ControlPlane};
use tonic::service::Routes;
use tonic::{Request, Status};

/// The application: a client with a deadline.
struct Shop {
    client: EchoClient<XdsChannel>,
}

impl Shop {
    /// The program itself passes `Bootstrap::from_env()?`, tests that of their control plane.
    fn new(bootstrap: Bootstrap) -> Result<Self, BuildError> {
        let channel = XdsChannel::builder("xds:///orders").bootstrap(bootstrap).build()?;
        Ok(Self { client: EchoClient::new(channel) })
    }

    /// Places an order. Returns the backend that took it.
    async fn order(&mut self, item: &str) -> Result<String, Status> {
        let mut request = Request::new(EchoRequest::new(item));
        request.set_timeout(Duration::from_secs(5));
        Ok(self.client.unary(request).await?.into_inner().backend)
    }
}

/// A backend with your own service in the place of `EchoServer`: whatever a tonic server can route.
async fn backend(name: &str) -> std::io::Result<Backend> {
    Backend::serve(name, Routes::new(EchoServer::new(name))).await
}

/// A control plane that sends orders to `near`, and to `far` while that is down.
async fn control_plane(near: &Backend, far: &Backend) -> std::io::Result<ControlPlane> {
    let control_plane = ControlPlane::start().await?;
    control_plane.set_all([
        listener("orders", "orders-routes").into(),
        simple_route_config("orders-routes", "orders-cluster").into(),
        eds_cluster("orders-cluster").into(),
        priorities("orders-cluster", [[near], [far]]).into(),
    ]);
    Ok(control_plane)
}

#[cfg_attr(test, tokio::test)]
async fn orders_fail_over_and_return() -> Result<(), Box<dyn Error>> {
    let (near, far) = (backend("near").await?, backend("far").await?);
    let control_plane = control_plane(&near, &far).await?;
    let mut shop = Shop::new(Bootstrap::from_json(&control_plane.bootstrap_json())?)?;
    assert_eq!(shop.order("tea").await?, "near");
    println!("near takes orders, and is killed");

    // An order may be lost with the connection that it is on; later ones go to the other backend.
    near.kill().await;
    while shop.order("tea").await.ok().as_deref() != Some("far") {}
    println!("far takes orders, and near is started again");

    near.restart().await?;
    near.wait_connections(1).await?;
    while shop.order("tea").await? != "near" {}
    println!("near takes orders again, and none was lost on the way back");
    Ok(())
}

#[cfg(not(test))]
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    orders_fail_over_and_return().await
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn Error>>;

    fn shop(control_plane: &ControlPlane) -> Result<Shop, Box<dyn Error>> {
        Ok(Shop::new(Bootstrap::from_json(&control_plane.bootstrap_json())?)?)
    }

    #[tokio::test]
    async fn orders_go_on_without_the_control_plane() -> TestResult {
        let (near, far) = (backend("near").await?, backend("far").await?);
        let control_plane = control_plane(&near, &far).await?;
        let mut shop = shop(&control_plane)?;
        assert_eq!(shop.order("tea").await?, "near");

        drop(control_plane);
        assert_eq!(shop.order("tea").await?, "near");
        Ok(())
    }

    #[tokio::test]
    async fn an_order_to_a_missing_service_says_so() -> TestResult {
        let (near, far) = (backend("near").await?, backend("far").await?);
        let control_plane = control_plane(&near, &far).await?;
        let mut shop = shop(&control_plane)?;
        assert_eq!(shop.order("tea").await?, "near");

        control_plane.remove(proxyless_testkit::LDS, "orders");
        let status = loop {
            match shop.order("tea").await {
                Ok(_) => {}
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(status.message().contains("orders"), "{}", status.message());
        Ok(())
    }
}
