//! The runtime of a channel: no tasks are left in it after a restart, and errors say what is wrong with it.

use std::io;

use proxyless::ChannelState;
use proxyless_testkit::Backend;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use tonic::Code;

use crate::common::*;
use crate::{builder_of, plane_of, trap_driver, until_report, until_state};

/// Tasks and connections of drivers that panicked end.
#[test]
fn restarts_leave_no_tasks_behind() -> TestResult {
    const NAME: &str = "tasks.example";
    let servers = tokio::runtime::Runtime::new()?;
    let backends = servers
        .block_on(async { Ok::<_, io::Error>((Backend::start("a").await?, Backend::start("b").await?)) })?;
    let plane = servers.block_on(plane_of(NAME, &[&backends.0, &backends.1]));
    let home = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let channel = home.block_on(async { builder_of(&plane, NAME).build() })?;
    servers.block_on(until_only(&channel, &["a", "b"]));
    // The channel, and two for each connection. Those of timers end a moment after their RPCs.
    let until_few_tasks = async || {
        let few = async {
            while home.metrics().num_alive_tasks() != 5 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, few).await
    };
    servers.block_on(until_few_tasks())?;
    trap_driver(NAME, 2);
    plane.set(eds_cluster(NAME).max_requests(100));
    servers.block_on(async {
        until_report(&channel, |report| report.restarts == 2).await;
        until_only(&channel, &["a", "b"]).await;
        backends.0.wait_connections(1).await?;
        backends.1.wait_connections(1).await
    })?;
    servers.block_on(until_few_tasks())?;
    drop(channel);
    servers.block_on(plane.wait_open_streams(0))?;
    Ok(())
}

/// A channel cannot even pause without timers; the error says so.
#[test]
fn a_runtime_without_timers_is_named() -> TestResult {
    const NAME: &str = "timers.example";
    let servers = tokio::runtime::Runtime::new()?;
    let plane = servers.block_on(plane_of(NAME, &[]));
    let home = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_io().build()?;
    let channel = home.block_on(async { builder_of(&plane, NAME).build() })?;
    let mut client = EchoClient::new(channel.clone());
    // Without a deadline.
    let call = client.unary(EchoRequest::new("hello"));
    let failed = servers.block_on(async { tokio::time::timeout(PATIENCE, call).await })?.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    assert!(failed.message().contains("timers are disabled"), "{failed:?}");
    servers.block_on(until_state(&channel, ChannelState::Shutdown));
    let failed = servers.block_on(channel.ready()).unwrap_err();
    assert!(failed.message().contains("timers are disabled"), "{failed:?}");
    Ok(())
}

/// A panic of the program that ends the runtime is not a panic of the channel.
#[test]
fn a_runtime_that_ends_while_a_panic_unwinds_has_ended() -> TestResult {
    const NAME: &str = "unwinding.example";
    let servers = tokio::runtime::Runtime::new()?;
    let backend = servers.block_on(Backend::start("a"))?;
    let plane = servers.block_on(plane_of(NAME, &[&backend]));
    let home = tokio::runtime::Runtime::new()?;
    let channel = home.block_on(async { builder_of(&plane, NAME).build() })?;
    assert_eq!(home.block_on(ask(&channel))?, "a");
    let program = std::thread::spawn(move || {
        let _home = home;
        panic!("a bug of the program");
    });
    assert!(program.join().is_err());
    let failed = servers.block_on(ask(&channel)).unwrap_err();
    assert!(failed.message().contains("the runtime in which the channel was made has ended"), "{failed:?}");
    Ok(())
}
