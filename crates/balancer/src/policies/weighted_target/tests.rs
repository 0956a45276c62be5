//! Tests of the weighted_target policy, by rule.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_sans_io::{Rng, SmallMap};

use super::{Target, WeightedTarget, WeightedTargetConfig};
use crate::api::ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
use crate::api::{CallAttributes, Endpoints, Group, PolicyConfig, Update};
use crate::policies::ring_hash::RingHashConfig;
use crate::policies::round_robin::RoundRobinConfig;
use crate::policies::stub::{Rig, World, groups};
use crate::testing::{Bench, Picked, address, endpoints};

fn rig() -> Rig {
    Rig::new(WeightedTarget::default())
}

fn config(world: &World, targets: &[(&str, u32)]) -> WeightedTargetConfig {
    let target = |(name, weight): &(&str, u32)| {
        (Arc::from(*name), Target { weight: *weight, config: world.child(name) })
    };
    WeightedTargetConfig { targets: targets.iter().map(target).collect() }
}

fn update(rig: &mut Rig, targets: &[(&str, u32)]) {
    let config = config(&rig.world, targets);
    rig.update(config, Endpoints::none()).unwrap();
}

fn picks(rig: &mut Rig, times: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        *counts.entry(rig.pick()).or_default() += 1;
    }
    counts
}

#[test]
fn a28_picks_follow_the_weights_of_ready_children() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 3), ("c", 6), ("d", 1000)]);
    for name in ["a", "b", "c"] {
        rig.say(name, Ready);
    }
    let counts = picks(&mut rig, 10_000);
    assert_eq!(counts.len(), 3);
    for (name, expected) in [("a READY", 1000), ("b READY", 3000), ("c READY", 6000)] {
        assert!(counts[name].abs_diff(expected) < 200, "{counts:?}");
    }
}

#[test]
fn a28_weights_near_the_maximum_do_not_overflow() {
    let mut rig = rig();
    update(&mut rig, &[("a", u32::MAX), ("b", u32::MAX)]);
    rig.say("a", Ready);
    rig.say("b", Ready);
    let counts = picks(&mut rig, 1000);
    assert!(counts.values().all(|&count| count > 400), "{counts:?}");
}

#[test]
fn a28_states_are_aggregated() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 1), ("c", 1)]);
    assert_eq!((rig.state(), rig.pick()), (Connecting, "queue".into()));
    rig.say("a", Idle);
    rig.say("b", Idle);
    rig.say("c", TransientFailure);
    assert_eq!(rig.state(), Idle);
    rig.say("a", Connecting);
    assert_eq!(rig.state(), Connecting);
    rig.say("b", Ready);
    assert_eq!((rig.state(), rig.pick()), (Ready, "b READY".into()));
    for name in ["a", "b"] {
        rig.say(name, TransientFailure);
    }
    assert_eq!(rig.state(), TransientFailure);
}

#[test]
fn failed_children_show_their_errors_by_weight() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 9)]);
    rig.say("a", TransientFailure);
    rig.say("b", TransientFailure);
    let counts = picks(&mut rig, 1000);
    assert!(counts["a TRANSIENT_FAILURE"] < 200 && counts["b TRANSIENT_FAILURE"] > 800, "{counts:?}");
}

#[test]
fn transient_failure_is_sticky() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 1)]);
    rig.say("a", TransientFailure);
    rig.say("b", TransientFailure);
    let publishes = rig.publishes();
    rig.say("a", Connecting);
    rig.say("a", Connecting);
    assert_eq!((rig.publishes(), rig.state()), (publishes, TransientFailure));
    rig.world.facts().on_exit_idle.insert("a".to_owned(), Connecting);
    rig.say("a", Idle);
    assert_eq!((rig.publishes(), rig.state()), (publishes, TransientFailure), "it connects by itself");
    assert!(!picks(&mut rig, 100).contains_key("a CONNECTING"), "and so is its error");
    rig.say("a", Ready);
    rig.say("a", Connecting);
    assert_eq!(rig.state(), Connecting, "until it was READY");
}

#[test]
fn idle_children_are_told_to_connect() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1)]);
    rig.world.log();
    rig.world.facts().on_exit_idle.insert("a".to_owned(), Connecting);
    let publishes = rig.publishes();
    rig.say("a", Idle);
    assert_eq!(rig.world.log(), ["exit_idle a"]);
    assert_eq!((rig.publishes(), rig.state()), (publishes + 1, Connecting), "its IDLE was never seen");
}

#[test]
fn a42_idle_children_that_stay_idle_get_picks() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 1)]);
    rig.say("a", Idle);
    rig.say("b", TransientFailure);
    assert_eq!((rig.state(), rig.pick()), (Idle, "a IDLE".into()));
}

#[test]
fn a42_idle_children_have_their_share_beside_ready_ones() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 3), ("c", 1000)]);
    rig.say("a", Ready);
    rig.say("b", Idle);
    assert_eq!(rig.state(), Ready);
    let counts = picks(&mut rig, 10_000);
    assert_eq!(counts.len(), 2, "nobody waits for c, which connects");
    assert!(counts["b IDLE"].abs_diff(7500) < 200, "{counts:?}");
    // A pick made it connect: until it is READY, its share goes to the others.
    rig.say("b", Connecting);
    assert_eq!(picks(&mut rig, 100), [("a READY".to_owned(), 100)].into());
    rig.say("b", Ready);
    let counts = picks(&mut rig, 10_000);
    assert!(counts["b READY"].abs_diff(7500) < 200, "{counts:?}");
}

#[test]
fn a42_idle_children_get_picks_while_another_connects() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 1), ("c", 1)]);
    rig.say("a", Connecting);
    rig.say("b", Idle);
    rig.say("c", TransientFailure);
    assert_eq!(rig.state(), Connecting);
    let counts = picks(&mut rig, 1000);
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["a CONNECTING", "b IDLE"]);
    assert!(counts["b IDLE"].abs_diff(500) < 100, "{counts:?}");
}

#[test]
fn a42_failed_child_that_waits_for_a_pick_gets_one() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 1)]);
    rig.say("a", Ready);
    rig.say("b", TransientFailure);
    assert_eq!(picks(&mut rig, 100).len(), 1);
    rig.say("b", Idle);
    assert!(picks(&mut rig, 100).contains_key("b IDLE"));
    rig.say("a", TransientFailure);
    assert_eq!((rig.state(), rig.pick()), (Idle, "b IDLE".into()), "and its parents know that it waits");
}

#[test]
fn all_children_are_updated_before_one_publish() {
    let mut rig = rig();
    for name in ["a", "b"] {
        rig.world.facts().on_update.insert(name.to_owned(), Ready);
    }
    update(&mut rig, &[("a", 1), ("b", 1)]);
    assert_eq!((rig.publishes(), rig.state()), (1, Ready));
    assert_eq!(picks(&mut rig, 100).len(), 2);
}

#[test]
fn changed_weights_do_not_touch_the_children() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 1)]);
    rig.say("a", Ready);
    rig.say("b", Ready);
    rig.world.log();
    update(&mut rig, &[("a", 1), ("b", 99)]);
    assert_eq!(rig.world.log(), Vec::<String>::new());
    let counts = picks(&mut rig, 1000);
    assert!(counts["b READY"] > 900, "{counts:?}");
}

#[test]
fn update_that_changes_nothing_publishes_nothing() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 1)]);
    rig.say("a", Ready);
    rig.say("b", Ready);
    let publishes = rig.publishes();
    update(&mut rig, &[("a", 1), ("b", 1)]);
    assert_eq!(rig.publishes(), publishes);
}

#[test]
fn child_that_left_the_configuration_is_dropped_at_once() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 1)]);
    rig.say("a", Ready);
    rig.say("b", Ready);
    update(&mut rig, &[("b", 1), ("c", 1)]);
    assert!(!rig.exists("a") && rig.exists("c"));
    assert_eq!(picks(&mut rig, 100).len(), 1);
}

#[test]
fn no_children_is_a_failure_that_carries_the_note() {
    let mut rig = rig();
    let mut update = Update::new(Arc::new(WeightedTargetConfig::default()), Endpoints::none());
    update.resolution_note = Some("no localities".into());
    rig.update_with(&update).unwrap();
    assert_eq!(rig.state(), TransientFailure);
    assert_eq!(rig.pick(), "no localities (no children in weighted_target policy)");
}

#[test]
fn children_get_the_group_of_their_name() {
    let mut rig = rig();
    let config = config(&rig.world, &[("a", 1), ("b", 1)]);
    rig.update(config, groups(&[("b", &[83]), ("a", &[81, 82])])).unwrap();
    assert_eq!(rig.world.log(), ["update a [81, 82]", "update b [83]"]);
}

#[test]
fn weight_zero_is_refused() {
    let mut rig = rig();
    let bad = config(&rig.world, &[("a", 0)]);
    let error = rig.update(bad.clone(), Endpoints::none()).unwrap_err();
    assert_eq!((error.reason.as_str(), rig.state()), (r#"the weight of target "a" is 0"#, TransientFailure));
    update(&mut rig, &[("a", 1)]);
    rig.say("a", Ready);
    assert!(rig.update(bad, Endpoints::none()).is_err());
    assert_eq!(rig.pick(), "a READY");
}

/// Localities of ring_hash: weight and endpoints of each.
fn rings(localities: &[(u32, &[u16])]) -> (Arc<WeightedTargetConfig>, Endpoints) {
    let (mut targets, mut groups) = (SmallMap::new(), Vec::new());
    for (n, (weight, numbers)) in localities.iter().enumerate() {
        let (name, weight) = (Arc::<str>::from(n.to_string()), *weight);
        targets.insert(Arc::clone(&name), Target { weight, config: Arc::new(RingHashConfig::default()) });
        groups.push(Group { name, weight, locality: None, endpoints: endpoints(numbers.iter().copied()) });
    }
    (Arc::new(WeightedTargetConfig { targets }), Endpoints::Groups(groups.into()))
}

#[test]
fn a27_97_a42_localities_of_ring_hash_share_by_weight() {
    let mut bench = Bench::new();
    let (config, endpoints) = rings(&[(1, &[1]), (2, &[2]), (3, &[3]), (4, &[4])]);
    bench.update(config, endpoints);
    assert_eq!((bench.state(), bench.connecting()), (Idle, vec![]), "only picks make them connect");
    for _ in 0..200 {
        bench.pick();
        bench.ready_all();
    }
    assert_eq!(bench.connected(), (1..=4).map(address).collect());
    let picks = bench.picks(20_000);
    for (n, weight) in [(1, 1), (2, 2), (3, 3), (4, 4)] {
        let count = picks.iter().filter(|&&picked| picked == address(n)).count();
        assert!(count.abs_diff(2000 * weight) < 300, "{n}: {count}");
    }
}

#[test]
fn a42_a_locality_that_never_answers_holds_up_nobody_else() {
    let mut bench = Bench::new();
    let (config, endpoints) = rings(&[(1, &[1]), (1, &[2])]);
    bench.update(config, endpoints);
    assert_eq!(bench.pick(), Picked::Queue);
    let [silent] = bench.connecting()[..] else { panic!("one is asked for") };
    for _ in 0..100 {
        assert_eq!(bench.pick(), Picked::Queue);
    }
    assert_eq!(bench.connecting().len(), 2, "later picks reach the other one");
    let other = bench.connecting()[1];
    assert_ne!(other, silent);
    bench.ready(other);
    assert_eq!(bench.picked(100), [other].into());
}

#[test]
fn a42_a_ring_that_connects_still_starts_the_endpoints_of_other_picks() {
    let mut bench = Bench::new();
    let (config, endpoints) = rings(&[(1, &[1, 2, 3])]);
    bench.update(config, endpoints);
    let mut rng = Rng::new(1);
    for _ in 0..100 {
        let attributes = CallAttributes { hash: rng.next_u64(), ..CallAttributes::default() };
        assert_eq!(bench.pick_with(attributes), Picked::Queue);
    }
    assert_eq!(bench.connecting().len(), 3);
}

#[test]
fn a42_new_endpoints_of_a_failed_locality_are_tried_beside_a_ready_one() {
    let mut bench = Bench::new();
    let (config, endpoints) = rings(&[(1, &[1]), (1, &[2])]);
    bench.update(config, endpoints);
    for _ in 0..100 {
        bench.pick();
        if bench.connecting().contains(&address(1)) {
            bench.ready(address(1));
        }
    }
    bench.fail(address(2));
    assert_eq!(bench.picked(100), [address(1)].into());
    let (config, endpoints) = rings(&[(1, &[1]), (1, &[3])]);
    bench.update(config, endpoints);
    for _ in 0..100 {
        bench.pick();
        bench.ready_all();
    }
    assert_eq!(bench.picked(100), [address(1), address(3)].into());
}

#[test]
fn changed_weights_do_not_touch_the_subchannels() {
    let mut bench = Bench::new();
    let config = |weight| {
        let targets = [("a", 1), ("b", weight)].map(|(name, weight)| {
            (Arc::from(name), Target { weight, config: Arc::new(RoundRobinConfig) as Arc<dyn PolicyConfig> })
        });
        Arc::new(WeightedTargetConfig { targets: targets.into() })
    };
    let localities = |weight| {
        let group =
            |name: &str, weight, endpoints| Group { name: name.into(), weight, locality: None, endpoints };
        Endpoints::Groups([group("a", 1, endpoints(1..=2)), group("b", weight, endpoints(3..=3))].into())
    };
    bench.update(config(1), localities(1));
    bench.ready_all();
    bench.take_effects();
    bench.update(config(1_000_000), localities(1_000_000));
    assert_eq!(bench.take_effects(), []);
    assert_eq!(bench.picked(50), [address(3)].into());
}
