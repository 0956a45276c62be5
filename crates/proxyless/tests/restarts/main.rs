//! Components that panic are restarted, and affect nothing else: channel drivers (in which a tracing subscriber
//! panics), connectors, byte streams, resolvers and request bodies.

#[path = "../common/mod.rs"]
mod common;
mod plugins;
mod runtimes;

use std::fmt::{Debug, Write};
use std::sync::{Mutex, Once};
use std::task::Poll;
use std::time::{Duration, Instant};

use common::*;
use proxyless::inspect::ChannelView;
use proxyless::{ChannelState, ClientPool, WaitForReady, XdsChannel, XdsChannelBuilder};
use proxyless_mesh::policies::cluster_impl::CircuitRegistry;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request};
use tracing::field::{Field, Visit};
use tracing::span;

/// Panics at the next `left` events that contain all these parts. Each test uses different parts.
struct Trap {
    parts: Vec<String>,
    left: usize,
}

static TRAPS: Mutex<Vec<Trap>> = Mutex::new(Vec::new());

fn trap(parts: &[&str], times: usize) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Clumsy).unwrap());
    let parts = parts.iter().map(|&part| part.to_owned()).collect();
    TRAPS.lock().unwrap().push(Trap { parts, left: times });
}

/// Removes the traps with this part.
fn untrap(part: &str) {
    TRAPS.lock().unwrap().retain(|trap| !trap.parts.iter().any(|known| known == part));
}

struct Clumsy;

impl tracing::Subscriber for Clumsy {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.module_path().is_some_and(|path| path.starts_with("proxyless"))
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let caught = |trap: &&mut Trap| trap.left > 0 && trap.parts.iter().all(|part| text.0.contains(part));
        let is_trapped = TRAPS.lock().unwrap().iter_mut().find(caught).map(|trap| trap.left -= 1).is_some();
        assert!(!is_trapped, "clumsy on purpose");
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

/// A control plane whose resources all have this name.
async fn plane_of(name: &str, backends: &[&Backend]) -> ControlPlane {
    let plane = ControlPlane::start().await.unwrap();
    plane.set_all([
        listener(name, name).into(),
        simple_route_config(name, name).into(),
        eds_cluster(name).into(),
        priorities(name, [backends.to_vec()]).into(),
    ]);
    plane
}

fn builder_of(plane: &ControlPlane, name: &str) -> XdsChannelBuilder {
    let builder = XdsChannel::builder(&format!("xds:///{name}")).bootstrap(bootstrap(plane));
    builder.client_pool(ClientPool::new())
}

/// The log message of a channel driver with new pickers.
fn published(name: &str) -> [String; 2] {
    ["=published".to_owned(), format!("target_uri=xds:///{name} ")]
}

fn trap_driver(name: &str, times: usize) {
    let parts = published(name);
    trap(&parts.each_ref().map(String::as_str), times);
}

fn untrap_driver(name: &str) {
    untrap(&published(name)[1]);
}

async fn until_report(channel: &XdsChannel, fits: impl Fn(&ChannelView) -> bool) -> ChannelView {
    let found = async {
        loop {
            if let Some(report) = channel.describe().await.filter(&fits) {
                return report;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("such a report")
}

async fn until_state(channel: &XdsChannel, state: ChannelState) {
    let mut states = channel.watch_state();
    let waited = tokio::time::timeout(PATIENCE, states.wait_for(|seen| *seen == state)).await;
    waited.expect("the state").expect("a channel");
}

fn patient(message: &str) -> Request<EchoRequest> {
    let mut request = Request::new(EchoRequest::new(message));
    request.extensions_mut().insert(WaitForReady);
    request.set_timeout(PATIENCE);
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_whose_driver_panics_is_rebuilt() -> TestResult {
    const NAME: &str = "rebuilt.example";
    let circuits = || CircuitRegistry::global().in_flight(NAME, None);
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = plane_of(NAME, &[&a]).await;
    plane.set(listener("neighbour.example", NAME));
    let pool = ClientPool::new();
    let channel = builder_of(&plane, NAME).client_pool(pool.clone()).build()?;
    let neighbour = builder_of(&plane, "neighbour.example").client_pool(pool.clone()).build()?;
    until_only(&channel, &["a"]).await;
    until_only(&neighbour, &["a"]).await;
    let load = Load::start(&neighbour, 1);
    let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
    sender.send(EchoRequest::new("0"))?;
    let mut client = EchoClient::new(channel.clone());
    let mut stream = client.chat(UnboundedReceiverStream::new(requests)).await?.into_inner();
    assert!(stream.message().await?.is_some());
    assert!(circuits() >= 1);

    // RPCs fail with the channel and the panic in the error; wait-for-ready RPCs wait for the next driver.
    trap_driver(NAME, usize::MAX);
    plane.set(priorities(NAME, [[&b]]));
    let failed = until_failure(&channel, "panicked").await;
    assert_eq!(failed.code(), Code::Unavailable);
    for part in ["xds:///rebuilt.example: the task of the channel", "clumsy on purpose"] {
        assert!(failed.message().contains(part), "{failed:?}");
    }
    until_state(&channel, ChannelState::TransientFailure).await;
    let waiting = tokio::spawn(async move { client.unary(patient("hello")).await });
    untrap_driver(NAME);
    assert_eq!(waiting.await??.into_inner().backend, "b");
    until_only(&channel, &["b"]).await;

    // An RPC on a connection of the old driver continues there; the connection is closed afterwards.
    sender.send(EchoRequest::new("1"))?;
    assert_eq!(stream.message().await?.ok_or("the stream ended")?.message, "1");
    drop(sender);
    assert!(stream.message().await?.is_none());
    let (_, failures) = load.stop().await;
    assert!(failures.is_empty(), "a channel beside it: {failures:?}");
    a.wait_connections(0).await?;
    b.wait_connections(2).await?;
    assert_eq!((circuits(), plane.streams_opened()), (0, 1));

    let report = until_report(&channel, |report| report.restarts > 0).await;
    let events: Vec<_> = report.events.iter().map(|event| event.description.as_str()).collect();
    let mut rest = events.iter();
    for what in [
        "channel CONNECTING → READY",
        "the task of the channel panicked: clumsy on purpose",
        "channel READY → TRANSIENT_FAILURE",
        "restarted after a panic (restart 1)",
        "channel TRANSIENT_FAILURE → CONNECTING",
        "channel CONNECTING → READY",
    ] {
        assert!(rest.any(|event| *event == what), "{what} is missing in {events:#?}");
    }
    assert!(report.calls.succeeded > 12, "calls of both drivers count: {:?}", report.calls);
    drop((channel, neighbour));
    plane.wait_open_streams(0).await?;
    b.wait_connections(0).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_panics_again_and_again_pauses_longer() -> TestResult {
    const NAME: &str = "pauses.example";
    let backend = Backend::start("a").await?;
    let plane = plane_of(NAME, &[&backend]).await;
    let channel = builder_of(&plane, NAME).build()?;
    trap_driver(NAME, 2);
    // Logging a panic may panic too.
    trap(&["a task panicked", &format!("who=channel xds:///{NAME}")], 1);
    let begin = Instant::now();
    let answer = EchoClient::new(channel.clone()).unary(patient("hello")).await?;
    assert_eq!(answer.into_inner().backend, "a");
    // One second and two, minus 20 percent at most.
    assert!(begin.elapsed() >= Duration::from_millis(2400), "{:?}", begin.elapsed());
    assert_eq!(until_report(&channel, |_| true).await.restarts, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_pauses_after_a_panic_answers_and_ends() -> TestResult {
    const NAME: &str = "asked.example";
    let backend = Backend::start("a").await?;
    let plane = plane_of(NAME, &[&backend]).await;
    let channel = builder_of(&plane, NAME).build()?;
    trap_driver(NAME, usize::MAX);
    until_failure(&channel, "panicked").await;
    let is_failed = |report: &ChannelView| report.tree.error.is_some();
    let report = until_report(&channel, is_failed).await;
    assert!(report.tree.error.is_some_and(|error| error.contains("clumsy on purpose")));
    assert_eq!((report.target.as_str(), report.tree.listener.as_str()), ("xds:///asked.example", NAME));
    assert!(report.calls.failed >= 1, "{:?}", report.calls);
    until_state(&channel, ChannelState::TransientFailure).await;
    drop(channel);
    plane.wait_open_streams(0).await?;
    backend.wait_connections(0).await?;
    Ok(())
}

/// The next driver numbers clusters differently: a call that was routed by the old one must not use its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_over_a_restart_goes_to_its_own_cluster() -> TestResult {
    const NAME: &str = "numbers.example";
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = plane_of(NAME, &[]).await;
    let routes = |choices: [&str; 2]| {
        let routes = choices.map(|choice| route_for(choice, &format!("numbers-{choice}")));
        route_config(NAME, [virtual_host(["*"], routes)])
    };
    plane.set_all([
        routes(["a", "b"]).into(),
        eds_cluster("numbers-a").into(),
        eds_cluster("numbers-b").into(),
        priorities("numbers-a", [[&a]]).into(),
        priorities("numbers-b", [Vec::<&Backend>::new()]).into(),
    ]);
    let channel = builder_of(&plane, NAME).build()?;
    assert_eq!(ask_for(&channel, "a").await?, "a");
    let mut request = patient("hello");
    request.metadata_mut().insert("x-choice", "b".parse()?);
    let mut client = EchoClient::new(channel.clone());
    let mut call = Box::pin(async move { client.unary(request).await });
    // One poll makes it wait for a connection of its cluster.
    assert!(std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await);
    let call = tokio::spawn(call);
    trap_driver(NAME, 1);
    plane.set(routes(["b", "a"]));
    until_report(&channel, |report| report.restarts == 1).await;
    assert_eq!(ask_for(&channel, "a").await?, "a");
    plane.set(priorities("numbers-b", [[&b]]));
    assert_eq!(call.await??.into_inner().backend, "b");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_of_both_drivers_is_reported() -> TestResult {
    const NAME: &str = "load.example";
    let backend = Backend::start("a").await?;
    let plane = plane_of(NAME, &[&backend]).await;
    plane.set(eds_cluster(NAME).report_load());
    plane.set(listener("keeper.example", NAME));
    let pool = ClientPool::new();
    let channel = builder_of(&plane, NAME).client_pool(pool.clone()).build()?;
    // The xDS client stays, and with it the unreported load of the first driver.
    let keeper = builder_of(&plane, "keeper.example").client_pool(pool.clone()).build()?;
    ask(&keeper).await?;
    for _ in 0..5 {
        ask(&channel).await?;
    }
    trap_driver(NAME, 1);
    plane.set(eds_cluster(NAME).report_load().max_requests(100));
    until_report(&channel, |report| report.restarts == 1).await;
    for _ in 0..5 {
        ask(&channel).await?;
    }
    let load = plane.wait_load(NAME, |load| load.succeeded == 11).await?;
    assert_eq!((load.issued, load.failed), (11, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_panics_while_it_goes_idle_is_idle() -> TestResult {
    const NAME: &str = "idle.example";
    let backend = Backend::start("a").await?;
    let plane = plane_of(NAME, &[&backend]).await;
    let channel = builder_of(&plane, NAME).idle_timeout(Duration::from_millis(100)).build()?;
    trap(&["=idle", &format!("target_uri=xds:///{NAME}")], 1);
    ask(&channel).await?;
    let report = until_report(&channel, |report| report.restarts == 1).await;
    assert_eq!(report.state.to_string(), "IDLE");
    assert_eq!(channel.state(), ChannelState::Idle);
    plane.wait_open_streams(0).await?;
    backend.wait_connections(0).await?;
    assert_eq!(ask(&channel).await?, "a");
    Ok(())
}
