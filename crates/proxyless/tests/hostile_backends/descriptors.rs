//! More endpoints than file descriptors.

use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use proxyless::connect::{Address, Connecting, Connector, TcpConnector};
use proxyless_testkit::Backend;
use proxyless_testkit::resources::*;
use tracing::{Event, Metadata, span};

use crate::Turn;
use crate::case::{options, plane_of};
use crate::common::{TestResult, ask, until_only};

/// Counts connection attempts.
struct Counting(Arc<AtomicUsize>);

impl Connector for Counting {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        self.0.fetch_add(1, SeqCst);
        Box::pin(async move { TcpConnector::default().connect(address).await })
    }
}

static WARNINGS: AtomicUsize = AtomicUsize::new(0);

/// Counts log messages about file descriptors.
struct Log;

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN && metadata.target() == "subchannel"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            if format!("{value:?}").contains("RLIMIT_NOFILE") {
                WARNINGS.fetch_add(1, SeqCst);
            }
        });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Runs [`in_a_process_with_few_descriptors`] in a separate process.
#[cfg(unix)]
#[tokio::test]
async fn endpoints_beyond_the_limit_of_descriptors_cost_no_rpc() -> TestResult {
    let turn = Turn::take().await;
    let child = Command::new("sh")
        .args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe()?)
        .args(["--ignored", "--exact", "descriptors::in_a_process_with_few_descriptors", "--nocapture"])
        .output()?;
    let text = [child.stdout, child.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
    turn.end();
    Ok(())
}

/// The control plane lists more endpoints than the process can connect to: RPCs continue on the existing connections,
/// attempts keep their backoff, the log has one warning, and freed descriptors are used for connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the test above, with a low limit"]
async fn in_a_process_with_few_descriptors() -> TestResult {
    const OTHERS: usize = 12;
    tracing::subscriber::set_global_default(Log)?;
    let attempts = Arc::new(AtomicUsize::new(0));
    let first = Backend::start("first").await?;
    let mut others = Vec::new();
    for number in 0..OTHERS {
        others.push(Backend::start(&format!("other-{number}")).await?);
    }
    let plane = plane_of(&[first.address()]).await;
    let channel = options(&plane).connector(Counting(Arc::clone(&attempts))).build()?;
    ask(&channel).await?;
    // Only these are left, for both ends of two connections.
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.truncate(files.len().saturating_sub(4));
    let mut addresses = vec![first.address()];
    addresses.extend(others.iter().map(Backend::address));
    plane.set(priorities("cluster", [addresses]));
    while WARNINGS.load(SeqCst) == 0 {
        ask(&channel).await?;
    }
    let before = attempts.load(SeqCst);
    let begin = std::time::Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        ask(&channel).await?;
    }
    // Two seconds have one or two attempts for each.
    let more = attempts.load(SeqCst) - before;
    assert!(more <= 4 * OTHERS, "{more} attempts in {:?}", begin.elapsed());
    assert_eq!(WARNINGS.load(SeqCst), 1);
    drop(files);
    let names: Vec<_> = others.iter().map(|backend| backend.name().to_owned()).collect();
    let mut missing: std::collections::BTreeSet<_> = names.into_iter().collect();
    let all = async {
        while !missing.is_empty() {
            missing.remove(&ask(&channel).await?);
        }
        Ok::<_, tonic::Status>(())
    };
    tokio::time::timeout(crate::common::PATIENCE, all).await??;
    plane.set(priorities("cluster", [[first.address()]]));
    until_only(&channel, &["first"]).await;
    Ok(())
}
