//! Loom models of the waits of RPCs for snapshots.

use std::sync::OnceLock;

use http::HeaderMap;
use proxyless_balancer::api::{
    CallAttributes, ConnectivityState, PickArgs, PickError, PickResult, QueuePicker,
};
use proxyless_balancer::policies::round_robin;
use proxyless_balancer::testing::{Bench, address, endpoints};
use proxyless_mesh::channel_core::DataPlane;
use proxyless_mesh::route_table::ChannelHash;
use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::future::block_on;
use proxyless_sans_io::sync::loom::thread;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::settings::{CallSettings, RetryOptions};
use super::*;
use crate::credentials::XdsCredentials;
use crate::drive::channel::Command;
use crate::snapshot::{End, Published};

fn runtime() -> tokio::runtime::Handle {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let build = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    RUNTIME.get_or_init(build).handle().clone()
}

fn channel() -> (Arc<Shared>, UnboundedReceiver<Command>) {
    let (commands, inbox) = unbounded_channel();
    let shared = Shared {
        target: "xds:///model".into(),
        authority: None,
        server: "server".into(),
        node: "node".into(),
        published: Arc::new(Published::new()),
        hash: ChannelHash(0),
        commands,
        calls: CallSettings::new(runtime(), RetryOptions::default(), 16 << 10, &XdsCredentials::default()),
        telemetry: None,
    };
    (Arc::new(shared), inbox)
}

fn data(generation: u64) -> DataPlane {
    DataPlane {
        generation,
        state: ConnectivityState::Connecting,
        routes: Err(PickError::unavailable("none")),
        picker: QueuePicker::new(),
    }
}

/// An RPC that waits for a snapshot in which `look` finds something. (If it waits for ever, loom finds that all threads
/// wait.)
fn rpc<T: 'static>(
    shared: &Arc<Shared>,
    look: impl Fn(&Snapshot) -> Option<T> + 'static,
) -> thread::JoinHandle<Result<T, Status>> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let (mut head, ()) = Request::new(()).into_parts();
        let mut call = Call::new(&shared, &mut head, None);
        let found = |_: &mut Call<'_>, snapshot: &Snapshot| look(snapshot);
        block_on(call.wait_for(Waiting::Route, found))
    })
}

/// Finds a snapshot of this generation or a later one.
fn from_generation(generation: u64) -> impl Fn(&Snapshot) -> Option<u64> {
    move |snapshot| snapshot.data.as_ref().map(|data| data.generation).filter(|&found| found >= generation)
}

fn receive(inbox: &mut UnboundedReceiver<Command>) -> Option<Command> {
    block_on(inbox.recv())
}

/// No RPC is lost that waits while the driver publishes.
#[test]
fn every_rpc_that_waits_for_a_generation_wakes() {
    check(3, || {
        let (shared, _inbox) = channel();
        let rpcs = [1, 2].map(|generation| rpc(&shared, from_generation(generation)));
        shared.published.publish(data(1));
        shared.published.publish(data(2));
        for rpc in rpcs {
            assert!(rpc.join().unwrap().is_ok());
        }
    });
}

/// The first RPCs of an IDLE channel notify the driver, once, and get its snapshot.
#[test]
fn the_first_rpc_wakes_an_idle_channel_once() {
    check(3, || {
        let (shared, mut inbox) = channel();
        let rpcs = [(); 2].map(|()| rpc(&shared, from_generation(1)));
        assert!(matches!(receive(&mut inbox), Some(Command::ExitIdle)));
        shared.published.publish(data(1));
        for rpc in rpcs {
            assert!(rpc.join().unwrap().is_ok());
        }
        assert!(inbox.try_recv().is_err(), "asked twice");
    });
}

/// An RPC that began before the channel went IDLE, and found nothing, wakes it.
#[test]
fn an_rpc_that_meets_the_idle_timeout_wakes_the_channel() {
    check(3, || {
        let (shared, mut inbox) = channel();
        shared.published.publish(data(1));
        let rpc = rpc(&shared, from_generation(2));
        shared.published.enter_idle();
        assert!(matches!(receive(&mut inbox), Some(Command::ExitIdle)));
        shared.published.publish(data(2));
        assert!(rpc.join().unwrap().is_ok());
    });
}

/// RPCs that wait when the driver ends fail.
#[test]
fn the_end_of_the_driver_ends_the_wait() {
    check(3, || {
        let (shared, _inbox) = channel();
        let rpcs = [(); 2].map(|()| rpc(&shared, from_generation(2)));
        shared.published.publish(data(1));
        shared.published.end(End::Dropped);
        for rpc in rpcs {
            assert!(rpc.join().unwrap().is_err());
        }
    });
}

/// An RPC that finds the slot of its target empty gets the next connection: the real tree fills the slot before the
/// driver can publish that it has, and empties it before it publishes that.
#[test]
fn an_rpc_that_finds_its_slot_empty_gets_the_next_connection() {
    check(3, || {
        let (shared, _inbox) = channel();
        let mut bench = Bench::new();
        let publish = |bench: &mut Bench, generation| {
            let output = bench.tree().output().clone();
            let routes = Err(PickError::unavailable("none"));
            let (state, picker) = (output.state, output.picker);
            shared.published.publish(DataPlane { generation, state, routes, picker });
        };
        bench.update(Arc::new(round_robin::RoundRobinConfig), endpoints([1]));
        bench.ready(address(1));
        publish(&mut bench, 1);
        let rpc = rpc(&shared, |snapshot| {
            let data = snapshot.data.as_ref()?;
            let (headers, mut rng) = (HeaderMap::new(), Rng::new(1));
            let attributes = CallAttributes::default();
            let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
            let PickResult::Complete(pick) = data.picker.pick(&mut args) else { return None };
            // The first connection is lost: its transport says so before the tree does.
            let connection = pick.target.slot.load()?;
            (data.generation > 1).then_some(connection)
        });
        bench.go_away(address(1));
        publish(&mut bench, 2);
        while bench.connecting().is_empty() {
            bench.exit_idle();
            bench.advance_to_deadline();
        }
        bench.ready(address(1));
        publish(&mut bench, 3);
        assert!(rpc.join().unwrap().is_ok());
    });
}
