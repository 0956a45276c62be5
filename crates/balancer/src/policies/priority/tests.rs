//! Tests of the priority policy, by rule.

use std::sync::Arc;
use std::time::Duration;

use super::choice::{Lower, PriorityChoice, PriorityState, choose};
use super::{Labels, Priority, PriorityChild, PriorityConfig, RETENTION};
use crate::api::ConnectivityState::{self, Connecting, Idle, Ready, TransientFailure};
use crate::api::{Endpoints, Group, Update};
use crate::policies::round_robin::RoundRobinConfig;
use crate::policies::stub::{Rig, World, groups};
use crate::testing::{Bench, address, endpoints};

const FAILOVER: Duration = Duration::from_secs(10);
const JUST_BEFORE: Duration = Duration::from_millis(9_999);
const MILLISECOND: Duration = Duration::from_millis(1);

fn rig() -> Rig {
    Rig::new(Priority::default())
}

fn config(world: &World, names: &[&str]) -> PriorityConfig {
    PriorityConfig::new(names.iter().map(|name| {
        let child = PriorityChild { config: world.child(name), ignore_reresolution_requests: false };
        (Arc::from(*name), child)
    }))
}

fn update(rig: &mut Rig, names: &[&str]) {
    let config = config(&rig.world, names);
    rig.update(config, Endpoints::none()).unwrap();
}

fn on_update(rig: &Rig, name: &str, state: ConnectivityState) {
    rig.world.facts().on_update.insert(name.to_owned(), state);
}

#[test]
fn a56_children_are_created_lazily() {
    let mut rig = rig();
    update(&mut rig, &["a", "b", "c"]);
    assert!(rig.exists("a") && !rig.exists("b"));
    assert_eq!((rig.state(), rig.pick()), (Connecting, "queue".into()));
    rig.say("a", TransientFailure);
    assert!(rig.exists("b") && !rig.exists("c"));
    rig.say("b", Ready);
    rig.say("a", Connecting);
    assert!(!rig.exists("c"), "nothing below a usable child is created");
    assert_eq!((rig.state(), rig.pick()), (Ready, "b READY".into()));
}

#[test]
fn a56_idle_child_is_usable() {
    let mut rig = rig();
    on_update(&rig, "a", Idle);
    update(&mut rig, &["a", "b"]);
    assert_eq!((rig.state(), rig.exists("b")), (Idle, false));
}

#[test]
fn x_14_failover_after_ten_seconds() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.advance(JUST_BEFORE);
    assert!(!rig.exists("b"));
    rig.advance(MILLISECOND);
    assert!(rig.exists("b"));
    rig.say("b", Ready);
    assert_eq!(rig.pick(), "b READY");
    rig.say("a", Ready);
    assert_eq!(rig.pick(), "a READY");
}

#[test]
fn a56_failover_timeout_is_configurable() {
    let mut rig = rig();
    let config = PriorityConfig { failover_timeout: MILLISECOND, ..config(&rig.world, &["a", "b"]) };
    rig.update(config, Endpoints::none()).unwrap();
    rig.advance(MILLISECOND);
    assert!(rig.exists("b"));
}

#[test]
fn x_14_duplicate_connecting_keeps_failover_timer() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.advance(JUST_BEFORE);
    rig.say("a", Connecting);
    rig.advance(MILLISECOND);
    assert!(rig.exists("b"), "the timer of the creation went on");
    rig.say("a", Connecting);
    rig.say("b", Ready);
    assert_eq!(rig.pick(), "b READY", "nor does it start again");
}

#[test]
fn a56_timer_expiry_does_not_fail_the_child() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.say("a", Connecting);
    rig.advance(FAILOVER);
    rig.say("b", TransientFailure);
    // Nothing is usable; the first that still tries is waited for.
    assert_eq!((rig.state(), rig.pick()), (Connecting, "a CONNECTING".into()));
    rig.advance(FAILOVER * 10);
    assert_eq!(rig.pick(), "a CONNECTING");
}

#[test]
fn a56_connecting_after_ready_is_given_time_again() {
    for usable in [Ready, Idle] {
        let mut rig = rig();
        update(&mut rig, &["a", "b"]);
        rig.say("a", usable);
        rig.advance(FAILOVER * 3);
        rig.say("a", Connecting);
        assert_eq!((rig.state(), rig.exists("b")), (Connecting, false));
        rig.advance(JUST_BEFORE);
        rig.say("a", Connecting);
        assert!(!rig.exists("b"));
        rig.advance(MILLISECOND);
        assert!(rig.exists("b"), "after {usable}");
    }
}

#[test]
fn a56_connecting_after_failure_is_given_no_time() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.say("a", Ready);
    rig.say("a", TransientFailure);
    rig.say("b", Ready);
    rig.say("a", Connecting);
    assert_eq!((rig.state(), rig.pick()), (Ready, "b READY".into()));
}

#[test]
fn a56_ready_and_idle_and_failure_cancel_the_timer() {
    for state in [Ready, Idle, TransientFailure] {
        let mut rig = rig();
        update(&mut rig, &["a"]);
        let timers = rig.cx.timers.len();
        rig.say("a", state);
        assert_eq!(rig.cx.timers.len(), timers - 1, "{state}");
    }
}

#[test]
fn a56_last_failure_is_reported_if_all_failed() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.say("a", TransientFailure);
    assert_eq!(rig.state(), Connecting);
    rig.say("b", TransientFailure);
    assert_eq!((rig.state(), rig.pick()), (TransientFailure, "b TRANSIENT_FAILURE".into()));
}

#[test]
fn a56_empty_priority_list_fails() {
    let mut rig = rig();
    update(&mut rig, &[]);
    assert_eq!(
        (rig.state(), rig.pick()),
        (TransientFailure, "priority policy has empty priority list".into())
    );
    update(&mut rig, &["a"]);
    assert_eq!(rig.state(), Connecting);
    update(&mut rig, &[]);
    assert_eq!((rig.state(), rig.exists("a")), (TransientFailure, false));
}

#[test]
fn x_14_one_choice_after_all_children_are_updated() {
    let mut rig = rig();
    update(&mut rig, &["a", "b", "c"]);
    rig.say("a", TransientFailure);
    rig.say("a", Ready);
    rig.say("b", TransientFailure);
    // The update swaps the READY child. A choice between the updates of a and b would move on to c.
    on_update(&rig, "a", TransientFailure);
    on_update(&rig, "b", Ready);
    rig.world.log();
    let publishes = rig.publishes();
    let children = ["a", "b", "c"].map(|name| {
        let config = rig.world.child_version(name, 1);
        (Arc::from(name), PriorityChild { config, ignore_reresolution_requests: false })
    });
    rig.update(PriorityConfig::new(children), Endpoints::none()).unwrap();
    assert_eq!(rig.world.log(), ["update a []", "update b []"]);
    assert_eq!((rig.publishes() - publishes, rig.pick()), (1, "b READY".into()));
    assert!(!rig.exists("c"));
}

#[test]
fn x_15_deactivated_child_is_kept_fifteen_minutes() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.say("a", TransientFailure);
    rig.say("b", Ready);
    rig.say("a", Ready);
    rig.advance(RETENTION - MILLISECOND);
    assert!(rig.exists("b"));
    rig.advance(MILLISECOND);
    assert!(!rig.exists("b"));
    rig.say("a", TransientFailure);
    assert!(rig.exists("b"), "and is created again when needed");
}

#[test]
fn x_15_deactivation_is_not_prolonged_by_other_events() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.say("a", TransientFailure);
    rig.say("a", Ready);
    rig.advance(RETENTION - MILLISECOND);
    rig.say("a", Ready);
    rig.say("b", Connecting);
    rig.advance(MILLISECOND);
    assert!(!rig.exists("b"));
}

#[test]
fn x_15_reactivated_child_stays() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.say("a", TransientFailure);
    rig.say("b", Ready);
    rig.say("a", Ready);
    rig.advance(RETENTION / 2);
    rig.say("a", TransientFailure);
    assert_eq!(rig.pick(), "b READY", "at once, since it was kept");
    rig.world.log();
    rig.advance(RETENTION * 2);
    assert_eq!(rig.world.log(), Vec::<String>::new(), "neither dropped nor created again");
}

#[test]
fn x_15_a115_child_that_left_the_configuration_is_dropped_at_once() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.say("a", TransientFailure);
    rig.say("b", Ready);
    update(&mut rig, &["b"]);
    assert!(!rig.exists("a"));
    assert_eq!((rig.state(), rig.pick()), (Ready, "b READY".into()));
}

#[test]
fn a37_58_reresolution_is_ignored_for_children_that_say_so() {
    let mut rig = rig();
    let with_flag = |world: &World, ignore| {
        let child = PriorityChild { config: world.child("a"), ignore_reresolution_requests: ignore };
        PriorityConfig::new([(Arc::from("a"), child)])
    };
    let config = with_flag(&rig.world, true);
    rig.update(config, Endpoints::none()).unwrap();
    rig.ask_reresolution("a");
    assert_eq!(rig.cx.reresolutions, 0);
    let config = with_flag(&rig.world, false);
    rig.update(config, Endpoints::none()).unwrap();
    rig.ask_reresolution("a");
    assert_eq!(rig.cx.reresolutions, 1);
}

#[test]
fn a37_62_child_survives_a_change_of_its_place() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.say("a", TransientFailure);
    rig.say("b", Ready);
    rig.world.log();
    let publishes = rig.publishes();
    update(&mut rig, &["b", "a"]);
    assert_eq!(rig.world.log(), Vec::<String>::new(), "an unchanged child hears nothing");
    assert_eq!((rig.publishes(), rig.pick()), (publishes, "b READY".into()));
}

#[test]
fn new_higher_priority_takes_over_only_when_ready() {
    let mut rig = rig();
    update(&mut rig, &["b"]);
    rig.say("b", Ready);
    let publishes = rig.publishes();
    update(&mut rig, &["a", "b"]);
    assert!(rig.exists("a"));
    rig.say("a", Connecting);
    assert_eq!((rig.publishes(), rig.pick()), (publishes, "b READY".into()));
    rig.say("a", Ready);
    assert_eq!(rig.pick(), "a READY");
    // Afterwards A56 holds as it is: a child that lost its connection is waited for.
    rig.say("a", Connecting);
    assert_eq!(rig.pick(), "a CONNECTING");
}

#[test]
fn new_higher_priority_that_fails_or_times_out_leaves_the_old_one_serving() {
    for fails in [true, false] {
        let mut rig = rig();
        update(&mut rig, &["b"]);
        rig.say("b", Ready);
        let publishes = rig.publishes();
        update(&mut rig, &["a", "b"]);
        if fails {
            rig.say("a", TransientFailure);
        }
        rig.advance(FAILOVER);
        assert_eq!((rig.publishes(), rig.pick()), (publishes, "b READY".into()));
        rig.say("b", TransientFailure);
        assert_eq!(rig.state(), if fails { TransientFailure } else { Connecting });
    }
}

#[test]
fn old_priority_that_fails_while_the_new_one_connects_does_not_serve() {
    let mut rig = rig();
    update(&mut rig, &["b"]);
    rig.say("b", Ready);
    update(&mut rig, &["a", "b"]);
    rig.say("b", TransientFailure);
    assert_eq!((rig.state(), rig.pick()), (Connecting, "queue".into()));
}

#[test]
fn a56_child_that_did_not_serve_before_the_update_does_not_serve_early() {
    let mut rig = rig();
    update(&mut rig, &["b"]);
    update(&mut rig, &["a", "b"]);
    rig.say("b", Ready);
    assert_eq!((rig.state(), rig.pick()), (Connecting, "queue".into()));
}

#[test]
fn a56_children_get_the_group_of_their_name_and_the_rest_of_the_update() {
    let mut rig = rig();
    let config = config(&rig.world, &["a", "b"]);
    let endpoints = groups(&[("a", &[81, 82]), ("b", &[83])]);
    let mut update = Update::new(Arc::new(config), endpoints);
    rig.update_with(&update).unwrap();
    rig.say("a", TransientFailure);
    assert_eq!(rig.world.log(), ["update a [81, 82]", "update b [83]"]);
    update.resolution_note = Some("note".into());
    rig.update_with(&update).unwrap();
    assert_eq!(rig.world.log(), ["update a [81, 82]", "update b [83]"], "a note is passed down");
    update.shared = Some(Arc::new(1));
    rig.update_with(&update).unwrap();
    assert_eq!(rig.world.log().len(), 2, "shared data is passed down");
}

#[test]
fn a56_only_the_output_of_the_chosen_child_is_published() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.say("a", TransientFailure);
    rig.say("b", Ready);
    rig.say("a", Ready);
    let publishes = rig.publishes();
    rig.say("b", Idle);
    rig.say("b", Connecting);
    assert_eq!(rig.publishes(), publishes);
    rig.say("a", Ready);
    assert_eq!(rig.publishes(), publishes + 1, "a new picker of the chosen child");
}

#[test]
fn a56_endpoint_that_moves_between_priorities_is_not_connected_again() {
    let mut bench = Bench::new();
    let config = |names: &[&str]| {
        let child =
            || PriorityChild { config: Arc::new(RoundRobinConfig), ignore_reresolution_requests: false };
        Arc::new(PriorityConfig::new(names.iter().map(|name| (Arc::from(*name), child()))))
    };
    let group = |name: &str, endpoints| Group { name: name.into(), weight: 1, locality: None, endpoints };
    let two = [group("child0", endpoints(1..=1)), group("child1", endpoints(2..=2))];
    bench.update(config(&["child0", "child1"]), Endpoints::Groups(two.into()));
    bench.fail(address(1));
    bench.ready(address(2));
    bench.take_effects();
    bench.take_states();
    // The endpoint goes to a child of another name; the pool has its connection.
    let one = [group("child2", endpoints(2..=2))];
    bench.update(config(&["child2"]), Endpoints::Groups(one.into()));
    assert_eq!(bench.take_effects(), []);
    assert_eq!((bench.take_states(), bench.picks(1)), (vec![Ready], vec![address(2)]));
}

#[test]
fn exit_idle_reaches_the_chosen_child() {
    let mut rig = rig();
    update(&mut rig, &["a", "b"]);
    rig.say("a", TransientFailure);
    rig.say("b", Idle);
    rig.world.log();
    rig.world.facts().on_exit_idle.insert("b".to_owned(), Connecting);
    rig.exit_idle();
    assert_eq!((rig.world.log(), rig.state()), (vec!["exit_idle b".to_owned()], Connecting));
}

#[test]
fn bad_configuration_is_refused_with_all_its_problems() {
    let mut rig = rig();
    let mut bad = config(&rig.world, &["a"]);
    bad.priorities.extend([Arc::from("x"), Arc::from("a")]);
    let error = rig.update(bad.clone(), Endpoints::none()).unwrap_err();
    assert_eq!(error.reason, r#"priority "x" names no child; priority "a" is listed twice"#);
    assert_eq!(rig.state(), TransientFailure);
    update(&mut rig, &["a"]);
    rig.say("a", Ready);
    assert!(rig.update(bad, Endpoints::none()).is_err());
    assert_eq!(rig.pick(), "a READY", "it keeps its previous configuration");
}

#[test]
fn nothing_is_left_of_a_dropped_policy() {
    let mut rig = rig();
    update(&mut rig, &["a", "b", "c"]);
    rig.say("a", TransientFailure);
    rig.say("b", TransientFailure);
    rig.say("a", Ready);
    assert!(!rig.cx.timers.is_empty());
    let cx = rig.drop_policy();
    assert!(cx.timers.is_empty() && cx.signals.is_empty());
}

#[test]
fn a56_choice_follows_the_algorithm_in_every_case() {
    let present = |state, failover_pending, carried_over| PriorityState::Present {
        state,
        failover_pending,
        carried_over,
    };
    let mut states = vec![PriorityState::Absent];
    for state in [Idle, Connecting, Ready, TransientFailure] {
        states.extend([
            present(state, false, false),
            present(state, true, false),
            present(state, false, true),
        ]);
    }
    let usable = |child: &PriorityState| matches!(child, PriorityState::Present { state: Ready | Idle, .. });
    let waited_for =
        |child: &PriorityState| matches!(child, PriorityState::Present { failover_pending: true, .. });
    for &a in &states {
        for &b in &states {
            for &c in &states {
                let case = [a, b, c];
                let stop = case
                    .iter()
                    .position(|child| *child == PriorityState::Absent || usable(child) || waited_for(child));
                let carried = |from: usize| (from..3).find(|&at| case[at] == present(Ready, false, true));
                let connecting =
                    |child: &PriorityState| matches!(child, PriorityState::Present { state: Connecting, .. });
                let expected = match stop {
                    Some(at) if case[at] == PriorityState::Absent => PriorityChoice::Create(at),
                    Some(at) if usable(&case[at]) => PriorityChoice::Use {
                        priority: at,
                        serving: at,
                        reached: at,
                        lower: Lower::Deactivated,
                    },
                    Some(at) => {
                        let serving = carried(at + 1).unwrap_or(at);
                        PriorityChoice::Use { priority: at, serving, reached: at, lower: Lower::Kept }
                    }
                    None => {
                        let at = case.iter().position(connecting).unwrap_or(2);
                        PriorityChoice::Use { priority: at, serving: at, reached: 2, lower: Lower::Kept }
                    }
                };
                assert_eq!(choose(&case), expected, "{case:?}");
            }
        }
    }
    assert_eq!(choose(&[]), PriorityChoice::Nothing);
}

#[test]
fn a56_a_change_of_the_child_that_serves_is_an_event_and_the_reason_of_the_state() {
    let mut rig = rig();
    let config = config(&rig.world, &["eu", "us"]);
    let config = PriorityConfig { cluster: "shop".into(), ..config };
    rig.update(config.clone(), Endpoints::none()).unwrap();
    rig.say("eu", Ready);
    assert!(rig.cx.events.is_empty(), "the most preferred one is as it should be");
    rig.say("eu", TransientFailure);
    assert!(rig.cx.events.is_empty(), "nobody serves yet");
    rig.say("us", Ready);
    assert_eq!(rig.cx.events, ["shop: failed over from eu to us"]);
    let why = |rig: &Rig| rig.describe().changed.map(|changed| changed.reason);
    assert_eq!(why(&rig).as_deref(), Some("failed over from eu"));
    rig.say("eu", Ready);
    assert_eq!(rig.cx.events.last().map(String::as_str), Some("shop: moved up from us to eu"));
    assert_eq!(why(&rig).as_deref(), Some("moved up from us"));
    rig.say("eu", TransientFailure);
    rig.say("us", TransientFailure);
    assert_eq!(why(&rig), None);
}

#[test]
fn made_up_names_are_shown_as_places() {
    let mut rig = rig();
    let config = config(&rig.world, &["child-7", "child-3"]);
    let config = PriorityConfig { labels: Labels::Places, ..config };
    rig.update(config, Endpoints::none()).unwrap();
    let names: Vec<String> = rig.describe().children.into_iter().map(|child| child.name).collect();
    assert_eq!(names, ["priority 0", "priority 1"]);
}

#[test]
fn a56_a_start_on_a_lower_child_is_a_failover() {
    let mut rig = rig();
    update(&mut rig, &["a", "b", "c"]);
    rig.say("a", TransientFailure);
    rig.say("b", TransientFailure);
    rig.say("c", Ready);
    assert_eq!(rig.cx.events, [": failed over from b to c"]);
}
