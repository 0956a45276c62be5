//! Bugs in plugged-in code: a tracing subscriber that panics inside the drivers.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use proxyless::{ClientPool, XdsChannel};
use proxyless_testkit::Backend;
use proxyless_testkit::resources::*;
use tracing::span;

/// When set, the next event of this kind panics.
static STREAM: AtomicBool = AtomicBool::new(false);
static XDS_CLIENT: AtomicBool = AtomicBool::new(false);
static CHANNEL: AtomicBool = AtomicBool::new(false);

struct Clumsy;

impl tracing::Subscriber for Clumsy {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let of_core = metadata.module_path().is_some_and(|path| path.starts_with("proxyless_xds::client"));
        let on_xds_thread = std::thread::current().name() == Some("xds-client");
        for (kind, concerned) in [
            (&XDS_CLIENT, of_core),
            (&STREAM, on_xds_thread && !of_core),
            (&CHANNEL, metadata.target() == "channel"),
        ] {
            assert!(!concerned || !kind.swap(false, Ordering::Relaxed), "clumsy on purpose");
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// One test: the subscriber is global.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_driver_is_neither_silent_nor_for_ever() -> TestResult {
    tracing::subscriber::set_global_default(Clumsy)?;
    let (a, b, c) = (Backend::start("a").await?, Backend::start("b").await?, Backend::start("c").await?);
    let plane = mesh(&[&a]).await;
    let pool = ClientPool::new();
    let build = || {
        let builder = XdsChannel::builder(&format!("xds:///{SERVICE}")).bootstrap(bootstrap(&plane));
        builder.client_pool(pool.clone()).build().unwrap()
    };
    let channel = build();
    until_only(&channel, &["a"]).await;

    // The task of a stream or of its connection: a new stream is opened.
    STREAM.store(true, Ordering::Relaxed);
    plane.set(priorities("cluster", [[&c]]));
    until_only(&channel, &["c"]).await;
    assert!(!STREAM.load(Ordering::Relaxed), "it panicked");

    // The xDS client: its channels keep their configuration, and get a new client.
    XDS_CLIENT.store(true, Ordering::Relaxed);
    plane.set(priorities("cluster", [[&b]]));
    until_only(&channel, &["b"]).await;
    assert!(!XDS_CLIENT.load(Ordering::Relaxed), "it panicked");
    until_only(&build(), &["b"]).await;
    plane.set(priorities("cluster", [[&c]]));
    until_only(&channel, &["c"]).await;

    // A channel: tests/restarts.rs has more.
    CHANNEL.store(true, Ordering::Relaxed);
    let lonely = build();
    let failed = until_failure(&lonely, "panicked").await;
    assert_eq!(failed.code(), tonic::Code::Unavailable);
    until_only(&lonely, &["c"]).await;
    Ok(())
}
