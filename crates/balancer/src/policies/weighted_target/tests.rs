//! Tests of the weighted_target policy, by rule.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Target, WeightedTarget, WeightedTargetConfig};
use crate::api::ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
use crate::api::{Endpoints, Group, PolicyConfig, Update};
use crate::policies::round_robin::RoundRobinConfig;
use crate::policies::stub::{Rig, World, groups};
use crate::testing::{Bench, address, endpoints};

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
    assert_eq!((rig.state(), rig.pick()), (Connecting, "queue".into()));
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
    rig.say("a", Idle);
    assert_eq!((rig.publishes(), rig.state()), (publishes, TransientFailure));
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
    assert_eq!((rig.publishes(), rig.state()), (publishes, Connecting), "its IDLE was never seen");
}

#[test]
fn idle_children_that_stay_idle_get_picks() {
    let mut rig = rig();
    update(&mut rig, &[("a", 1), ("b", 1)]);
    rig.say("a", Idle);
    rig.say("b", TransientFailure);
    assert_eq!((rig.state(), rig.pick()), (Idle, "a IDLE".into()));
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
    assert_eq!(rig.pick(), "no children in weighted_target policy (no localities)");
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
    assert_eq!((error.why.as_str(), rig.state()), (r#"the weight of target "a" is 0"#, TransientFailure));
    update(&mut rig, &[("a", 1)]);
    rig.say("a", Ready);
    assert!(rig.update(bad, Endpoints::none()).is_err());
    assert_eq!(rig.pick(), "a READY");
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
