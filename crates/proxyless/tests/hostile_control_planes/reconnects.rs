//! The rate of reconnects to a server that rejects the client.

use std::time::Duration;

use h2::Reason;
use tokio::io::AsyncWriteExt as _;

use super::hostile::{Attack, Seen};
use super::memory::unmeasured;
use super::world::survives;

/// Without a response the backoff grows: 1, 1.6 and 2.56 seconds, plus or minus 20 %.
fn assert_backs_off(what: &str, times: &[std::time::Instant]) {
    let took = times[2].duration_since(times[0]);
    assert!(took > Duration::from_millis(2080), "{what}: three in {took:?}");
}

fn opened(seen: &Seen) -> bool {
    seen.opened.len() >= 3
}

fn connected(seen: &Seen) -> bool {
    seen.connected.len() >= 3
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_grow_while_no_response_comes() {
    let _shared = unmeasured().await;
    let closes = Attack::raw(|io, _| async move { drop(io) });
    let resets = Attack::raw(|io, _| async move {
        // Without it the client sees an orderly end.
        let _ = io.set_zero_linger();
    });
    let settings = Attack::raw(|mut io, _| async move {
        // SETTINGS, and the end.
        let _ = io.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        let _ = io.shutdown().await;
    });
    let refuses = Attack::streams(|mut exchange| async move { exchange.reset(Reason::REFUSED_STREAM) });
    let cancels = Attack::streams(|mut exchange| async move {
        exchange.begin(&[]);
        exchange.reset(Reason::CANCEL);
    });
    let ends = Attack::streams(|mut exchange| async move {
        exchange.begin(&[]);
        exchange.end("14");
    });
    let ends_well = Attack::streams(|mut exchange| async move {
        exchange.begin(&[]);
        exchange.end("0");
    });
    let garbage = Attack::streams(|mut exchange| async move {
        exchange.begin(&[]);
        exchange.message(&[0xff; 100]).await;
        exchange.end("0");
    });
    let mut running = tokio::task::JoinSet::new();
    for (what, attack) in [("closes", closes), ("resets", resets), ("SETTINGS and closes", settings)] {
        running.spawn(async move {
            let seen = survives(what, attack, connected).await;
            assert_backs_off(what, &seen.connected);
        });
    }
    let streams = [
        ("refuses streams", refuses),
        ("cancels streams", cancels),
        ("UNAVAILABLE", ends),
        ("OK at once", ends_well),
        ("garbage and OK", garbage),
    ];
    for (what, attack) in streams {
        running.spawn(async move {
            let seen = survives(what, attack, opened).await;
            assert_backs_off(what, &seen.opened);
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic");
    }
}
