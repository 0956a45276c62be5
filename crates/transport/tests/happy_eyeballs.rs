//! Which of several addresses is connected to.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use proxyless_transport::{
    Address, ConnectError, ConnectOptions, Connector, Stage, TcpConnector, connect_any,
};
use support::{Raw, SETTINGS, TestBody, finished, listen};

/// Longer than any test may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

fn tcp() -> Arc<dyn Connector> {
    Arc::new(TcpConnector::default())
}

async fn first_ready(addresses: Vec<Address>) -> Address {
    let options = ConnectOptions { connect_timeout: CONNECT_TIMEOUT, ..ConnectOptions::default() };
    let begin = Instant::now();
    let (address, connection) =
        connect_any::<TestBody>(&tcp(), addresses, &options).await.expect("a connection");
    assert!(begin.elapsed() < CONNECT_TIMEOUT);
    drop(connection);
    // The attempts that lost are over.
    finished(&options.tasks).await;
    address
}

#[tokio::test]
async fn a61_an_address_without_settings_does_not_hold_up_the_next() {
    // The kernel accepts for it, and it says nothing.
    let (_silent, dead) = listen().await;
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move {
        let mut server = Raw::accept(&listener).await;
        server.write(SETTINGS, 0, 0, &[]).await;
        server.drained().await;
    });
    assert_eq!(first_ready(vec![dead.clone(), dead, address.clone()]).await, address);
    server.await.expect("no panic");
}

#[tokio::test]
async fn a61_the_next_attempt_begins_at_once_after_a_failure() {
    let (refusing, refused) = listen().await;
    drop(refusing);
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move {
        let mut server = Raw::accept(&listener).await;
        server.write(SETTINGS, 0, 0, &[]).await;
        server.drained().await;
    });
    let many = vec![refused; 200];
    // With 250 ms each this takes 50 seconds.
    let reached = tokio::time::timeout(
        Duration::from_secs(30),
        first_ready(many.into_iter().chain([address.clone()]).collect()),
    );
    assert_eq!(reached.await.expect("in time"), address);
    server.await.expect("no panic");
}

#[tokio::test]
async fn a61_every_address_has_its_own_deadline_and_error() {
    let (_silent, dead) = listen().await;
    let (refusing, refused) = listen().await;
    drop(refusing);
    let options = ConnectOptions { connect_timeout: Duration::from_millis(300), ..ConnectOptions::default() };
    let errors =
        connect_any::<TestBody>(&tcp(), vec![dead, refused], &options).await.expect_err("nobody serves");
    assert!(
        matches!(
            &errors[..],
            [ConnectError::Io { .. }, ConnectError::Timeout { stage: Stage::Settings, .. }]
        ),
        "{errors:?}"
    );
    finished(&options.tasks).await;
}

#[tokio::test]
async fn no_address_is_an_error() {
    let errors =
        connect_any::<TestBody>(&tcp(), Vec::new(), &ConnectOptions::default()).await.expect_err("nowhere");
    assert!(errors.is_empty());
}
