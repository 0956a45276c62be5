//! Each fault alone, and past bugs.

use std::time::Duration;

use proxyless::ChannelState;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use tokio::time::{Instant, sleep};
use tonic::{Code, Request};

use crate::backend::Backend;
use crate::bad_peer::BadPeer;
use crate::fault::Fault;
use crate::load::{Load, Rate};
use crate::oracles::{MOST_HELD, check_end, cold_trial, trial};
use crate::storm::Storm;
use crate::world::{Host, World, eventually, simulate};
use crate::{backend, early_peer, memory, plane};

/// One fault of one server, for a minute.
fn single(name: &str, host: Host, fault: Fault, rate: Rate) {
    simulate(1, async move {
        let world = World::start(name).await;
        trial(&world, &[(host, fault)], Storm::steady(Duration::from_secs(60)), rate).await;
        check_end(world).await;
    });
}

/// Runs each of these faults in a separate world, and reports all failures in one message.
fn each(host: Host, faults: Vec<Fault>, rate: Rate) {
    let failed: Vec<String> = faults
        .into_iter()
        .filter_map(|fault| {
            let run = std::panic::catch_unwind(|| single(&format!("{host:?}-{fault:?}"), host, fault, rate));
            let panic = run.err()?;
            let why = panic.downcast_ref::<String>().cloned();
            Some(why.unwrap_or_else(|| format!("{fault:?}: see above")))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn each_fault_of_a_backend() {
    each(Host::Backend(0), Fault::of_backends(), Rate::per_second(10));
}

#[test]
fn each_fault_of_a_control_plane() {
    each(Host::Plane, Fault::of_planes(), Rate::per_second(2));
}

/// The end of a stream was noticed only by reading up to it, and reading waited for ACKs that could not be sent.
#[test]
fn a_control_plane_that_ends_behind_many_responses_is_connected_to_again() {
    simulate(2, async {
        let world = World::start("behind").await;
        let load = Load::start(&world.channel, Rate::per_second(20));
        let mut to = [world.canary.clone(), world.backends[0].clone()].into_iter().cycle();
        for responses in [1, 20, 63, 64, 65, 66, 75, 130, 200] {
            for millis in [0, 1, 2, 3] {
                world.die_with_responses(responses, Duration::from_millis(millis)).await;
                let what = format!("{responses} responses, {millis} ms");
                expect_news(&world, &load, &what, &to.next().expect("a cycle")).await;
            }
        }
        drop(load);
        check_end(world).await;
    });
}

/// Its push loop continues while its receive loop hangs and grants no window. Then it restarts.
#[test]
fn a_control_plane_that_sends_and_never_reads_is_connected_to_again_when_it_restarts() {
    simulate(3, async {
        let world = World::start("deaf").await;
        let load = Load::start(&world.channel, Rate::per_second(20));
        world.begin(Host::Plane, Fault::Plane(plane::Manner::Deaf)).await;
        for _ in 0..3 {
            world.plane.burst(60);
            sleep(Duration::from_secs(1)).await;
        }
        world.end(Host::Plane, Fault::Plane(plane::Manner::Deaf));
        expect_news(&world, &load, "after the restart", &world.canary).await;
        drop(load);
        check_end(world).await;
    });
}

/// Unread requests fill buffers and windows; callers cancel, and HTTP/2 keeps their frames.
#[test]
fn a_hung_backend_does_not_fill_the_memory_and_is_given_up() {
    simulate(4, async {
        let world = World::start("hung").await;
        world.set_endpoints(vec![world.backends[0].address]);
        sleep(Duration::from_secs(1)).await;
        let rate = Rate::per_second(200);
        let load = Load::start(&world.channel, rate);
        sleep(Duration::from_secs(1)).await;
        let before = memory::held();
        memory::reset_peak();
        let hung = Fault::Peer(BadPeer::Hung);
        world.begin(Host::Backend(0), hung).await;
        sleep(Duration::from_secs(15)).await;
        world.end(Host::Backend(0), hung);
        let ended = Instant::now();
        // The buffers are full after a second; the write timeout is 20 seconds.
        let answers = || load.answered("b1").is_some_and(|at| at > ended);
        assert!(eventually(ended + Duration::from_secs(8), answers).await, "{}", world.describe(&load).await);
        let most = memory::peak() - before;
        // 1,024 cancelled requests of 11 KB each, and 200 in flight.
        assert!(most < MOST_HELD, "{most} bytes");
        drop(load);
        check_end(world).await;
    });
}

/// A graceful close waited for data that the peer never read.
#[test]
fn a_hung_backend_that_is_removed_costs_no_connection() {
    simulate(5, async {
        let world = World::start("removed").await;
        let load = Load::start(&world.channel, Rate::per_second(20));
        world.begin(Host::Backend(0), Fault::Peer(BadPeer::Hung)).await;
        sleep(Duration::from_secs(15)).await;
        world.set_endpoints(world.all()[1..].to_vec());
        // Five seconds for it to resume, and five for the close.
        let closed = || world.network.open(world.backends[0].address) == 0;
        assert!(eventually(Instant::now() + Duration::from_secs(11), closed).await, "it is kept");
        drop(load);
        check_end(world).await;
    });
}

/// Every connection was followed by the next one at once, and every RPC was sent on each.
#[test]
fn backends_that_say_goaway_to_every_request_are_not_stormed() {
    simulate(6, async {
        let world = World::start("goaway").await;
        let fault = Fault::Peer(BadPeer::GoAwayToRequest);
        let faults = [0, 1, 2].map(|number| (Host::Backend(number), fault));
        let rate = Rate { timeout: Duration::from_secs(20), ..Rate::per_second(10) };
        trial(&world, &faults, Storm::steady(Duration::from_secs(60)), rate).await;
        check_end(world).await;
    });
}

/// The deadline is far away, so that it does not limit the copies of an RPC.
#[test]
fn backends_that_refuse_every_request_get_few_copies_of_each() {
    simulate(7, async {
        let world = World::start("refuse").await;
        let faults = [0, 1, 2].map(|number| (Host::Backend(number), Fault::Backend(backend::Manner::Refuse)));
        let rate = Rate { timeout: Duration::from_secs(60), ..Rate::per_second(1) };
        trial(&world, &faults, Storm::steady(Duration::from_secs(25)), rate).await;
        check_end(world).await;
    });
}

/// Each stream that ended after a response was followed by the next one at once.
#[test]
fn a_control_plane_that_ends_its_streams_after_a_response_is_not_stormed() {
    simulate(8, async {
        let world = World::start("ends").await;
        let faults = [(Host::Plane, Fault::Plane(plane::Manner::EndAfterResponse))];
        trial(&world, &faults, Storm::steady(Duration::from_secs(120)), Rate::per_second(2)).await;
        check_end(world).await;
    });
}

/// Streams whose requests were not sent completely kept their slots.
#[test]
fn large_requests_that_are_answered_early_leave_no_streams_behind() {
    simulate(9, async {
        let world = World::start("early").await;
        let faults = [(Host::Backend(1), Fault::Backend(backend::Manner::Early))];
        let rate = Rate { bytes: 100_000, ..Rate::per_second(10) };
        trial(&world, &faults, Storm::steady(Duration::from_secs(30)), rate).await;
        check_end(world).await;
    });
}

/// h2 keeps the slot of a request whose end it was given, until the server has read it: this one never does.
#[test]
fn large_requests_that_are_answered_without_a_reset_give_their_places_to_others() {
    simulate(12, async {
        let world = World::cold("answered", |builder| builder);
        let address = world.backends[0].address;
        world.network.set_server(address, early_peer::server());
        world.set_endpoints(vec![address]);
        let send = async |bytes: usize| {
            let mut request = Request::new(EchoRequest::new("x".repeat(bytes)));
            request.set_timeout(Duration::from_secs(5));
            EchoClient::new(world.channel.clone()).unary(request).await
        };
        for number in 0..3 * early_peer::STREAMS {
            let status = send(100_000).await.expect_err("too large");
            assert_eq!(status.code(), Code::PermissionDenied, "large RPC {number}: {status:?}");
            let small = send(10).await;
            assert!(small.is_ok(), "after large RPC {number}: {small:?}");
        }
        assert_eq!(world.network.attempts(address), 1, "all of them on one connection");
        check_end(world).await;
    });
}

/// No kernel reports it, and nothing fills the buffers: only PINGs detect it.
#[test]
fn keepalive_finds_a_frozen_backend() {
    simulate(10, async {
        let (interval, timeout) = (Duration::from_secs(10), Duration::from_secs(5));
        let world = World::start_with("keepalive", |builder| {
            builder.keepalive_interval(interval).keepalive_timeout(timeout)
        })
        .await;
        let load = Load::start(&world.channel, Rate::per_second(3));
        sleep(Duration::from_secs(2)).await;
        let frozen = &world.backends[0];
        world.network.freeze(frozen.address);
        let since = Instant::now();
        let answers = || load.answered(&frozen.name).is_some_and(|at| at > since + Duration::from_secs(1));
        let by = since + interval + timeout + Duration::from_secs(2);
        assert!(eventually(by, answers).await, "{}", world.describe(&load).await);
        drop(load);
        check_end(world).await;
    });
}

/// Its first RPC has neither a configuration nor a server to get it from.
#[test]
fn a_channel_that_was_idle_begins_while_its_control_plane_is_away() {
    simulate(11, async {
        let idle = Duration::from_secs(30);
        let world = World::start_with("idle", |builder| builder.idle_timeout(idle)).await;
        let is_idle = || world.channel.state() == ChannelState::Idle;
        assert!(eventually(Instant::now() + idle * 3, is_idle).await, "{:?}", world.channel.state());
        let closed =
            || world.all().iter().chain([&world.plane.address]).all(|&at| world.network.open(at) == 0);
        assert!(eventually(Instant::now() + Duration::from_secs(6), closed).await, "connections are kept");
        let faults = [(Host::Plane, Fault::Refused), (Host::Backend(2), Fault::Refused)];
        cold_trial(&world, &faults, Storm::steady(Duration::from_secs(60)), Rate::per_second(10)).await;
        check_end(world).await;
    });
}

/// Moves all RPCs from the backends to the canary, or back, and waits until the first has arrived.
async fn expect_news(world: &World, load: &Load, what: &str, to: &Backend) {
    let since = Instant::now();
    let is_canary = to.address == world.canary.address;
    world.set_endpoints(if is_canary { vec![to.address] } else { world.all() });
    let answers = || load.answered(&to.name).is_some_and(|at| at >= since);
    // The first delay of the backoff, and a second.
    if !eventually(since + Duration::from_millis(2200), answers).await {
        panic!("{what}: no new configuration: {}", world.describe(load).await);
    }
}
