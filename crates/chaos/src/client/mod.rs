//! The process under test: channels, callers, and the resources that the process uses.

mod caller;
mod tracked;
mod usage;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proxyless::dns::{DnsAnswer, Resolve, ResolveError, ResolveErrorKind, Resolving};
use proxyless::{Bootstrap, XdsChannel, XdsChannelBuilder};
use proxyless_sans_io::Rng;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::child::{say, stdin_lines};
use crate::clock::{now, watch_lateness};
use crate::topology::{BACKENDS, Channel, DNS_BACKENDS, members};
use crate::wire::{ClientEvent, Usage};
use usage::usage;

/// The numbers of callers of unary RPCs and of streams per channel.
const CALLERS: (usize, usize) = (8, 3);

/// State shared by all callers.
#[derive(Debug)]
struct Load {
    control_plane: SocketAddr,
    backends: Vec<SocketAddr>,
    seed: u64,
    out: mpsc::UnboundedSender<String>,
    in_flight: AtomicUsize,
}

impl Load {
    fn say(&self, event: &ClientEvent) {
        let _ = self.out.send(serde_json::to_string(event).unwrap_or_default());
    }

    fn usage(&self) -> Usage {
        Usage { at: now(), in_flight: self.in_flight.load(Ordering::Relaxed), ..usage() }
    }
}

/// Runs the load by the commands `start`, `pause` and `finish` on standard input.
pub(crate) async fn client(
    control_plane: SocketAddr,
    backends: Vec<SocketAddr>,
    seed: u64,
) -> Result<(), Box<dyn Error>> {
    if backends.len() != BACKENDS {
        return Err(format!("{} backends, not {BACKENDS}", backends.len()).into());
    }
    let (out, mut lines) = mpsc::unbounded_channel::<String>();
    // A thread, so that a slow reader does not block a task.
    std::thread::spawn(move || {
        while let Some(line) = lines.blocking_recv() {
            say(&line);
        }
    });
    let late = out.clone();
    watch_lateness(move |delay| {
        let event = ClientEvent::Late { at: delay.at, late: delay.late };
        let _ = late.send(serde_json::to_string(&event).unwrap_or_default());
    });
    let load = Arc::new(Load { control_plane, backends, seed, out, in_flight: AtomicUsize::new(0) });
    let mut commands = stdin_lines();
    say("ready");
    if commands.recv().await.as_deref() != Some("start") {
        return Ok(());
    }
    let (stop, stopped) = watch::channel(());
    // Measured twice: the first time initialises the runtime for all later work.
    let _ = load.usage();
    load.say(&ClientEvent::Baseline(load.usage()));
    let channels = start_callers(&load, &stopped)?;
    loop {
        tokio::select! {
            command = commands.recv() => {
                if command.as_deref() == Some("pause") {
                    break;
                }
                return Ok(());
            }
            () = sleep(Duration::from_secs(1)) => load.say(&ClientEvent::Sample(load.usage())),
        }
    }
    drop(stopped);
    // Callers notice after their RPC; deadlines end the longest ones.
    let _ = stop.send(());
    stop.closed().await;
    let idle = settled(&load, |usage| usage.in_flight == 0, Duration::from_secs(5)).await;
    load.say(&ClientEvent::Idle(idle));
    if commands.recv().await.as_deref() == Some("finish") {
        drop(channels);
        // Idle threads of the runtime's blocking pool live for ten seconds.
        let gone = |usage: &Usage| usage.tasks == 0 && usage.connections.is_empty();
        let end = settled(&load, gone, Duration::from_secs(15)).await;
        load.say(&ClientEvent::End(end));
    }
    // The parent ends this process after reading everything.
    commands.recv().await;
    Ok(())
}

/// The usage once `enough` has held for a second, or after `limit`.
async fn settled(load: &Load, enough: impl Fn(&Usage) -> bool, limit: Duration) -> Usage {
    let deadline = Instant::now() + limit;
    let mut held = 0;
    loop {
        let usage = load.usage();
        held = if enough(&usage) { held + 1 } else { 0 };
        if held > 10 || Instant::now() > deadline {
            return usage;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Starts the callers of all channels; returns the channels that live as long as the load.
fn start_callers(load: &Arc<Load>, stopped: &watch::Receiver<()>) -> Result<Vec<XdsChannel>, Box<dyn Error>> {
    let mut channels = Vec::new();
    let mut rng = Rng::new(load.seed);
    for channel in Channel::ALL {
        if channel.is_short_lived() {
            // A second one would share the fresh client of the first.
            for _ in 0..if channel == Channel::Fresh { 1 } else { 2 } {
                let rng = Rng::new(rng.next_u64());
                tokio::spawn(caller::short_lived(load.clone(), channel, rng, stopped.clone()));
            }
            continue;
        }
        let built = builder(load, channel)?.build()?;
        for _ in 0..CALLERS.0 {
            let caller = caller::Caller::new(load.clone(), channel, built.clone(), Rng::new(rng.next_u64()));
            tokio::spawn(caller.unary_until(stopped.clone()));
        }
        for _ in 0..CALLERS.1 {
            let caller = caller::Caller::new(load.clone(), channel, built.clone(), Rng::new(rng.next_u64()));
            tokio::spawn(caller.stream_until(stopped.clone()));
        }
        channels.push(built);
    }
    Ok(channels)
}

fn builder(load: &Load, channel: Channel) -> Result<XdsChannelBuilder, Box<dyn Error>> {
    let bootstrap = format!(
        r#"{{"xds_servers": [{{"server_uri": "{}", "channel_creds": [{{"type": "insecure"}}],
        "server_features": ["xds_v3"]}}], "node": {{"id": "{}"}}}}"#,
        load.control_plane,
        channel.node()
    );
    let builder = XdsChannel::builder(&format!("xds:///{}", channel.service()))
        .bootstrap(Bootstrap::from_json(&bootstrap)?)
        .failover_timeout(Duration::from_secs(1))
        .connect_timeout(Duration::from_secs(5))
        .dns_min_interval(Duration::from_secs(1))
        .dns_resolver(Names::new(load));
    Ok(match channel.keepalive() {
        Some((interval, timeout)) => builder.keepalive_interval(interval).keepalive_timeout(timeout),
        None => builder,
    })
}

/// Resolves every name to the backends of the DNS cluster; fails sometimes.
#[derive(Debug)]
struct Names {
    addresses: Vec<SocketAddr>,
    asked: AtomicUsize,
}

impl Names {
    fn new(load: &Load) -> Self {
        let addresses = members(DNS_BACKENDS).map(|backend| load.backends[backend]).collect();
        Self { addresses, asked: AtomicUsize::new(0) }
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str, _port: u16) -> Resolving<'a> {
        // Never the first time: a known address must stay in use.
        let fails = self.asked.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        Box::pin(async move {
            if fails {
                return Err(ResolveError::new(host, ResolveErrorKind::NotFound));
            }
            Ok(DnsAnswer { addresses: self.addresses.clone(), ttl: None })
        })
    }
}
