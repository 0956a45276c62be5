//! Tests of an application's failure handling, with proxyless-testkit: `cargo test -p proxyless --example testkit`.
//!
//! The application is [`Shop`]. Its tests run against a control plane and backends inside the test process, on loopback
//! ports; failures are injected, and every wait observes state instead of sleeping.

use std::time::Duration;

use proxyless::{Bootstrap, BuildError, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use tonic::{Request, Status};

/// The application: a client with a deadline.
struct Shop {
    client: EchoClient<XdsChannel>,
}

impl Shop {
    /// Tests pass the bootstrap of their control plane; the program itself reads it from the environment.
    fn new(target: &str, bootstrap: Option<Bootstrap>) -> Result<Self, BuildError> {
        let builder = XdsChannel::builder(target);
        let channel = match bootstrap {
            Some(bootstrap) => builder.bootstrap(bootstrap).build()?,
            None => builder.build()?,
        };
        Ok(Self { client: EchoClient::new(channel) })
    }

    /// Places an order. Returns the backend that took it.
    async fn order(&mut self, item: &str) -> Result<String, Status> {
        let mut request = Request::new(EchoRequest::new(item));
        request.set_timeout(Duration::from_secs(5));
        Ok(self.client.unary(request).await?.into_inner().backend)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = Shop::new("xds:///orders", None)?.order("tea").await?;
    tracing::info!(backend, "ordered");
    Ok(())
}

#[cfg(test)]
mod tests {
    use proxyless_testkit::resources::{eds_cluster, listener, priorities, simple_route_config};
    use proxyless_testkit::{Backend, ControlPlane};

    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    /// A control plane that sends orders to `near`, and to `far` while that is down.
    async fn control_plane(
        near: &Backend,
        far: &Backend,
    ) -> Result<ControlPlane, Box<dyn std::error::Error>> {
        let control_plane = ControlPlane::start().await?;
        control_plane.set_all([
            listener("orders", "orders-routes").into(),
            simple_route_config("orders-routes", "orders-cluster").into(),
            eds_cluster("orders-cluster").into(),
            priorities("orders-cluster", [[near], [far]]).into(),
        ]);
        Ok(control_plane)
    }

    fn shop(control_plane: &ControlPlane) -> Result<Shop, Box<dyn std::error::Error>> {
        Ok(Shop::new("xds:///orders", Some(Bootstrap::from_json(&control_plane.bootstrap_json())?))?)
    }

    #[tokio::test]
    async fn orders_fail_over_and_return() -> TestResult {
        let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
        let control_plane = control_plane(&near, &far).await?;
        let mut shop = shop(&control_plane)?;
        assert_eq!(shop.order("tea").await?, "near");

        // An order may be lost with the connection that it is on; later ones go to the other backend.
        near.kill().await;
        while shop.order("tea").await.ok().as_deref() != Some("far") {}

        near.restart().await?;
        near.wait_connections(1).await?;
        while shop.order("tea").await? != "near" {}
        Ok(())
    }

    #[tokio::test]
    async fn orders_go_on_without_the_control_plane() -> TestResult {
        let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
        let control_plane = control_plane(&near, &far).await?;
        let mut shop = shop(&control_plane)?;
        assert_eq!(shop.order("tea").await?, "near");

        drop(control_plane);
        assert_eq!(shop.order("tea").await?, "near");
        Ok(())
    }

    #[tokio::test]
    async fn an_order_to_a_missing_service_says_so() -> TestResult {
        let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
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
