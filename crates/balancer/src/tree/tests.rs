//! The tree and its pool: sharing, lingering, backoff, delivery, timers, leaks.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proxyless_sans_io::Time;

use super::*;
use crate::api::ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
use crate::api::{
    Below, Children, Cx, Endpoints, Layer, Layered, Policy, PolicyConfig, QueuePicker, Timer, TreePath,
    TreePathBuf, config_of,
};
use crate::policies::pick_first::PickFirstConfig;
use crate::policies::round_robin::RoundRobinConfig;
use crate::policy_config;
use crate::testing::{Bench, Picked, address, endpoints};

fn pick_first() -> Arc<dyn PolicyConfig> {
    Arc::new(PickFirstConfig::default())
}

/// A policy with one pick_first child for each of its lists; says what the first one says.
#[derive(Debug, PartialEq)]
struct Fan(Vec<Vec<u16>>);

policy_config!(Fan, "fan", FanPolicy::default());

#[derive(Default)]
struct FanPolicy(Children<usize>);

impl FanPolicy {
    fn fold(&mut self, cx: &mut dyn Cx) {
        if let Some(first) = self.0.get_mut(&0)
            && first.child.take_dirty()
        {
            let output = first.child.output();
            cx.publish(output.state, Arc::clone(&output.picker));
        }
    }
}

impl Policy for FanPolicy {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let Fan(lists) = config_of("fan", &update.config)?;
        self.0.retain(|key| *key < lists.len());
        for (key, list) in lists.iter().enumerate() {
            let update = Update::new(pick_first(), endpoints(list.iter().copied()));
            self.0.get_or_insert_with(key, &update.config, || ()).child.update(&update, cx)?;
        }
        self.fold(cx);
        Ok(())
    }

    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        if let Some((index, path)) = path.next()
            && let Some(entry) = self.0.at(index)
        {
            entry.child.on_event(path, event, cx);
        }
        self.fold(cx);
    }

    fn exit_idle(&mut self, _: &mut dyn Cx) {}
}

fn fan(bench: &mut Bench, lists: &[&[u16]]) {
    bench.update(Arc::new(Fan(lists.iter().map(|list| list.to_vec()).collect())), Endpoints::none());
}

fn connects(effects: &[TreeEffect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, TreeEffect::Connect { .. })).count()
}

#[test]
fn two_positions_share_one_connection() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[1], &[1]]);
    assert_eq!(connects(&bench.take_effects()), 1);
    bench.ready(address(1));
    let stats = bench.tree().stats();
    assert_eq!((stats.subchannels, stats.owners), (1, 2));
    // One of them going leaves the connection to the other.
    fan(&mut bench, &[&[1]]);
    bench.advance(Duration::from_secs(60));
    assert_eq!(bench.take_effects(), []);
    assert_eq!(bench.picks(1), [address(1)]);
}

#[test]
fn late_owner_gets_the_current_state_as_its_first_event() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[2], &[1]]);
    bench.ready(address(1));
    bench.fail(address(2));
    // READY: published in the same step, without an attempt.
    bench.take_effects();
    fan(&mut bench, &[&[2, 1], &[1]]);
    assert_eq!(bench.state(), Ready);
    assert_eq!(connects(&bench.take_effects()), 0);
    assert_eq!(bench.picks(1), [address(1)]);
}

#[test]
fn late_owner_of_a_failing_entry_waits_for_its_backoff() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[3], &[1]]);
    bench.fail(address(1));
    bench.take_effects();
    fan(&mut bench, &[&[1], &[1]]);
    assert_eq!(bench.state(), TransientFailure);
    assert_eq!(connects(&bench.take_effects()), 0);
}

#[test]
fn late_owner_of_a_connecting_entry_shares_the_attempt() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[3], &[1]]);
    bench.take_effects();
    fan(&mut bench, &[&[1], &[1]]);
    assert_eq!(connects(&bench.take_effects()), 0);
    bench.ready(address(1));
    assert_eq!(bench.state(), Ready);
}

#[test]
fn a61_failure_of_another_owners_attempt_does_not_count_for_the_pass() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[9, 8, 7, 6, 5, 1, 4], &[1]]);
    bench.fail(address(1));
    // The pass comes to 1 when the other child tries it again, and then to the last address.
    bench.advance(Duration::from_millis(1_500));
    assert!(bench.connecting().contains(&address(1)) && bench.connecting().contains(&address(4)));
    for n in [9, 8, 7, 6, 5, 4] {
        bench.fail(address(n));
    }
    assert_eq!(bench.state(), Connecting, "1 has not failed for this pass");
    bench.fail(address(1));
    assert_eq!(bench.state(), TransientFailure);
}

#[test]
fn release_while_connecting_cancels() {
    let mut bench = Bench::new();
    bench.update(pick_first(), endpoints([1]));
    bench.take_effects();
    bench.update(pick_first(), Endpoints::none());
    let effects = bench.take_effects();
    assert!(matches!(effects[0], TreeEffect::CancelConnect { .. }), "{effects:?}");
    assert_eq!(bench.tree().stats().subchannels, 0);
}

#[test]
fn success_that_crosses_with_the_cancellation_is_closed() {
    let mut bench = Bench::new();
    bench.update(pick_first(), endpoints([1]));
    let TreeEffect::Connect { subchannel, attempt, timeout, .. } = bench.take_effects()[0] else { panic!() };
    assert_eq!(timeout, Duration::from_secs(20));
    bench.update(pick_first(), Endpoints::none());
    bench.take_effects();
    let tree = bench.tree();
    tree.on_connections(Time::ZERO, [(subchannel, attempt, ConnectionEvent::Ready(Arc::new(())))]);
    assert_eq!(tree.poll_effect(), Some(TreeEffect::CloseGracefully { subchannel, attempt }));
    tree.on_connections(Time::ZERO, [(subchannel, attempt, ConnectionEvent::Failed(String::new()))]);
    assert_eq!(tree.poll_effect(), None);
}

#[test]
fn unowned_connection_lingers_and_is_taken_up_again() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[1]]);
    bench.ready(address(1));
    bench.take_effects();
    fan(&mut bench, &[&[2]]);
    bench.advance(Duration::from_secs(4));
    assert!(bench.connected().contains(&address(1)));
    bench.take_effects();
    fan(&mut bench, &[&[2], &[1]]);
    assert_eq!(bench.take_effects(), []);
    assert_eq!(bench.tree().next_deadline(), None, "no needless wake-up is left");
    bench.advance(Duration::from_secs(600));
    assert!(bench.connected().contains(&address(1)));
}

#[test]
fn unowned_connection_is_closed_after_its_linger_time() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[1]]);
    bench.ready(address(1));
    fan(&mut bench, &[&[]]);
    bench.take_effects();
    bench.advance(Duration::from_secs(5) - Duration::from_nanos(1));
    assert_eq!(bench.take_effects(), []);
    bench.advance(Duration::from_nanos(1));
    assert!(matches!(bench.take_effects()[..], [TreeEffect::CloseGracefully { .. }]));
    assert_eq!(bench.tree().stats().subchannels, 0);
}

#[test]
fn no_linger_closes_at_once() {
    let mut bench = Bench::with_config(TreeConfig { linger: Duration::ZERO, ..TreeConfig::default() });
    fan(&mut bench, &[&[1]]);
    bench.ready(address(1));
    fan(&mut bench, &[&[]]);
    assert!(bench.connected().is_empty());
    assert_eq!(bench.tree().next_deadline(), None);
}

#[test]
fn unowned_failure_keeps_its_backoff_and_then_goes() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[1]]);
    bench.fail(address(1));
    fan(&mut bench, &[&[]]);
    assert_eq!(bench.tree().stats().subchannels, 1);
    // A new owner does not hammer the host.
    bench.take_effects();
    fan(&mut bench, &[&[1]]);
    assert_eq!(connects(&bench.take_effects()), 0);
    fan(&mut bench, &[&[]]);
    bench.advance(Duration::from_secs(2));
    assert_eq!(bench.tree().stats().subchannels, 0);
    assert_eq!(connects(&bench.take_effects()), 0);
}

#[test]
fn a_list_with_a_lingering_connection_starts_no_attempt() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[9], &[2]]);
    bench.ready(address(2));
    fan(&mut bench, &[&[9]]);
    bench.take_effects();
    fan(&mut bench, &[&[1, 2]]);
    let effects = bench.take_effects();
    assert!(matches!(effects[..], [TreeEffect::CancelConnect { .. }]), "only 9 is given up: {effects:?}");
    assert_eq!(bench.picks(1), [address(2)]);
}

#[test]
fn an_address_that_moves_between_children_keeps_its_attempt() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[1], &[2]]);
    bench.take_effects();
    fan(&mut bench, &[&[2], &[1]]);
    assert_eq!(bench.take_effects(), []);
}

#[test]
fn loss_of_a_connection_that_no_picker_has_only_bumps() {
    let mut bench = Bench::new();
    fan(&mut bench, &[&[1], &[2]]);
    bench.ready_all();
    bench.take_published();
    bench.close(address(2));
    assert_eq!(bench.take_published(), [(Publication::Bump, Ready)]);
    assert_eq!(bench.tree().take_published(), None);
}

#[test]
fn slot_is_empty_as_soon_as_the_connection_is_lost() {
    let mut bench = Bench::new();
    bench.update(pick_first(), endpoints([1]));
    bench.ready(address(1));
    let headers = http::HeaderMap::new();
    let mut rng = proxyless_sans_io::Rng::new(0);
    let attributes = crate::api::CallAttributes::default();
    let mut args = crate::api::PickArgs { path: "", headers: &headers, attributes, rng: &mut rng };
    let crate::api::PickResult::Complete(pick) = bench.tree().output().picker.pick(&mut args) else {
        panic!()
    };
    let connection = pick.target.slot.load().unwrap();
    assert_eq!(*connection.downcast_ref::<std::net::SocketAddr>().unwrap(), address(1));
    bench.go_away(address(1));
    assert!(pick.target.slot.load().is_none());
}

#[test]
fn reset_backoff_tries_at_once() {
    let mut bench = Bench::new();
    bench.update(Arc::new(RoundRobinConfig), endpoints(1..=2));
    bench.fail_all();
    assert!(bench.connecting().is_empty());
    bench.reset_backoff();
    assert_eq!(bench.connecting().len(), 2);
    bench.fail_all();
    assert!(bench.connecting().is_empty(), "backoff starts again");
}

#[test]
fn another_policy_takes_the_connections_over() {
    let mut bench = Bench::new();
    bench.update(Arc::new(RoundRobinConfig), endpoints(1..=3));
    bench.ready_all();
    bench.take_effects();
    bench.take_states();
    bench.update(pick_first(), endpoints(1..=3));
    assert_eq!(bench.take_effects(), []);
    assert_eq!(bench.take_states(), [Ready]);
    bench.update(Arc::new(RoundRobinConfig), endpoints(1..=3));
    assert_eq!(bench.take_states(), [Ready]);
    assert_eq!(bench.picked(3).len(), 3, "all were lingering");
}

#[test]
fn shutdown_leaves_nothing() {
    let mut bench = Bench::new();
    bench.update(Arc::new(RoundRobinConfig), endpoints(1..=4));
    bench.ready(address(1));
    bench.fail(address(2));
    bench.take_effects();
    bench.shutdown();
    let effects = bench.take_effects();
    let cancelled =
        effects.iter().filter(|effect| matches!(effect, TreeEffect::CancelConnect { .. })).count();
    let closed = effects.iter().filter(|effect| matches!(effect, TreeEffect::CloseGracefully { .. })).count();
    assert_eq!((cancelled, closed, effects.len()), (2, 1, 3), "{effects:?}");
    assert_eq!(bench.tree().stats(), TreeStats::default());
    assert_eq!(bench.tree().next_deadline(), None);
    assert_eq!(bench.pick(), Picked::Queue);
}

#[test]
fn churn_leaks_nothing() {
    let mut bench = Bench::new();
    for round in 0..200u16 {
        bench.update(Arc::new(RoundRobinConfig), endpoints(round..round + 5));
        match round % 4 {
            0 => bench.ready_all(),
            1 => bench.fail_all(),
            2 => bench.connected().into_iter().take(2).for_each(|address| bench.close(address)),
            _ => bench.advance(Duration::from_millis(300)),
        }
    }
    assert_eq!(bench.tree().stats().owners, 5);
    bench.update(Arc::new(RoundRobinConfig), Endpoints::none());
    bench.advance(Duration::from_secs(300));
    assert_eq!(bench.tree().stats(), TreeStats::default());
    assert!(bench.connecting().is_empty() && bench.connected().is_empty());
}

#[test]
fn raised_signal_wakes_the_driver_once() {
    struct Count(Mutex<u32>);
    impl Wake for Count {
        fn wake(&self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let wake = Arc::new(Count(Mutex::new(0)));
    let mut tree = Tree::new(TreeConfig::default(), 0, wake.clone());
    tree.update(Time::ZERO, &Update::new(pick_first(), endpoints([1]))).unwrap();
    let Some(TreeEffect::Connect { subchannel, attempt, .. }) = tree.poll_effect() else { panic!() };
    tree.on_connections(Time::ZERO, [(subchannel, attempt, ConnectionEvent::Ready(Arc::new(())))]);
    tree.on_connections(Time::ZERO, [(subchannel, attempt, ConnectionEvent::Closed("".into()))]);
    assert_eq!(tree.output().state, Idle);
    let headers = http::HeaderMap::new();
    for _ in 0..10 {
        let mut rng = proxyless_sans_io::Rng::new(0);
        let attributes = crate::api::CallAttributes::default();
        let mut args = crate::api::PickArgs { path: "", headers: &headers, attributes, rng: &mut rng };
        tree.output().picker.pick(&mut args);
    }
    assert_eq!(*wake.0.lock().unwrap(), 1);
    tree.on_signals(Time::ZERO);
    assert_eq!(tree.output().state, Connecting);
}

/// Sets three timers; the second one drops the third, and each sets one more that is due at once.
#[derive(Debug, PartialEq)]
struct Clocks;

static FIRED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

policy_config!(Clocks, "clocks", ClocksPolicy::default());

#[derive(Default)]
struct ClocksPolicy(Vec<Timer>);

impl Policy for ClocksPolicy {
    fn update(&mut self, _: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        for (delay, tag) in [(30, 3), (10, 1), (20, 2)] {
            self.0.push(cx.set_timer(TreePathBuf::default(), Duration::from_secs(delay), tag));
        }
        cx.publish(Connecting, QueuePicker::new());
        Ok(())
    }

    fn on_event(&mut self, _: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        let TreeEvent::Timer(tag) = event else { return };
        FIRED.lock().unwrap().push(tag);
        match tag {
            1 => self.0.push(cx.set_timer(TreePathBuf::default(), Duration::ZERO, 100)),
            2 => drop(self.0.remove(0)),
            _ => {}
        }
    }

    fn exit_idle(&mut self, _: &mut dyn Cx) {}
}

#[test]
fn timers_fire_in_order_of_time_and_dropped_ones_never() {
    let mut bench = Bench::new();
    bench.update(Arc::new(Clocks), Endpoints::none());
    let late = Time::ZERO + Duration::from_secs(60);
    bench.tree().on_tick(late);
    assert_eq!(*FIRED.lock().unwrap(), [1, 2], "3 was dropped; the new one waits for the next tick");
    assert_eq!(bench.tree().next_deadline(), Some(late));
    bench.tree().on_tick(late);
    assert_eq!(*FIRED.lock().unwrap(), [1, 2, 100]);
    assert_eq!(bench.tree().next_deadline(), None);
}

#[test]
fn a_tree_can_move_between_threads() {
    fn check<T: Send>() {}
    check::<Tree>();
}

/// round_robin, with a count of how often it publishes.
#[derive(Debug, PartialEq)]
struct Counted;

policy_config!(Counted, "counted", Layered::<CountedLayer>::default());

#[derive(Default)]
struct CountedLayer;

thread_local! {
    static PUBLISHED: Cell<usize> = const { Cell::new(0) };
}

impl Layer for CountedLayer {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        below.update(&Update { config: Arc::new(RoundRobinConfig), ..update.clone() }, self, cx)
    }

    fn publish(&mut self, output: &ChildOutput, cx: &mut dyn Cx) {
        PUBLISHED.set(PUBLISHED.get() + 1);
        cx.publish(output.state, Arc::clone(&output.picker));
    }
}

#[test]
fn connections_that_come_up_together_make_one_picker() {
    let mut bench = Bench::new();
    bench.update(Arc::new(Counted), endpoints(1..=100));
    let attempts: Vec<_> = bench
        .take_effects()
        .into_iter()
        .filter_map(|effect| match effect {
            TreeEffect::Connect { subchannel, attempt, .. } => {
                Some((subchannel, attempt, ConnectionEvent::Ready(Arc::new(()))))
            }
            _ => None,
        })
        .collect();
    assert_eq!(attempts.len(), 100);
    let (first, second) = attempts.split_at(60);
    PUBLISHED.set(0);
    for batch in [first, second] {
        bench.tree().on_connections(Time::ZERO, batch.iter().cloned());
    }
    assert_eq!(PUBLISHED.get(), 2);
    assert_eq!(bench.picked(100).len(), 100, "all are in it");
    // Connections that are lost together are released together, and at once.
    let lost: Vec<_> = first
        .iter()
        .map(|&(subchannel, attempt, _)| (subchannel, attempt, ConnectionEvent::Closed("gone".into())))
        .collect();
    bench.tree().on_connections(Time::ZERO, lost);
    assert_eq!(PUBLISHED.get(), 3);
    assert_eq!(bench.picked(200).len(), 40);
}
