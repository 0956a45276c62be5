use super::*;
use crate::demo::testing::{A, B, C, members, samples};

static PHASES: [Phase; 3] = [
    Phase { title: "up", acts: &[], expect: &[A], via: &[], share: 1 },
    Phase { title: "down", acts: &[], expect: &[C], via: &[], share: 1 },
    Phase { title: "back", acts: &[], expect: &[A], via: &[B], share: 1 },
];

/// All phases, 2 s each.
const PLAYED: [Played; 3] = [played(0, 2), played(2, 4), played(4, 6)];

const fn played(begin: u64, end: u64) -> Played {
    Played { begin: Duration::from_secs(begin), end: Duration::from_secs(end) }
}

fn summary(parts: &[(u64, u64, &str)]) -> Summary {
    Summary::new(&PHASES, &PLAYED, &members(), &samples(100, parts))
}

#[test]
fn each_move_is_measured_from_its_cause() {
    let summary = summary(&[
        (100, 2000, "a-1"),
        (2000, 2300, "!"),
        (2300, 4400, "c-1"),
        (4400, 4500, "b-1"),
        (4500, 6000, "a-2"),
    ]);
    assert_eq!(summary.problems(), [""; 0]);
    let ms = Duration::from_millis;
    let after: Vec<_> = summary.moves.iter().map(|m| m.after).collect();
    assert_eq!(after, [Some(ms(100)), Some(ms(300)), Some(ms(500))]);
    let failed: Vec<_> = summary.moves.iter().map(|m| m.failed).collect();
    assert_eq!(failed, [0, 3, 0]);
    let pauses: Vec<_> = summary.moves.iter().map(|m| m.longest_pause).collect();
    assert_eq!(pauses, [ms(100), ms(400), ms(100)]);

    let text = summary.to_string();
    assert!(text.contains("59 (56 answered, 3 failed)"), "{text}");
    assert!(text.contains("a-1 19, a-2 15, b-1 1, c-1 21"), "{text}");
    assert!(text.contains("3 x Unavailable, first: at 2000"), "{text}");
    let (up, down) = ("a".repeat(19), "c".repeat(21));
    assert!(text.contains(&format!(" {up}!!!{down}b{} ", "a".repeat(15))), "{text}");
    assert!(text.ends_with("RPCs moved as they should"), "{text}");
}

#[test]
fn a_move_that_does_not_happen_is_a_problem() {
    let summary = summary(&[(0, 2000, "a-1"), (2000, 4000, "!"), (4000, 6000, "a-1")]);
    assert_eq!(summary.problems(), ["down: c answered no RPC"]);
    assert!(summary.to_string().ends_with("FAILED"));
}

#[test]
fn an_answer_of_another_phase_does_not_count_as_a_move() {
    let summary = summary(&[(0, 2000, "a-1"), (2000, 4000, "!"), (4000, 4100, "c-1"), (4100, 6000, "a-1")]);
    assert_eq!(summary.problems(), ["down: c answered no RPC"]);
}

#[test]
fn a_move_that_does_not_last_is_a_problem() {
    let back = summary(&[(0, 2000, "a-1"), (2000, 5000, "c-1"), (5000, 5900, "a-1"), (5900, 6000, "c-1")]);
    assert_eq!(back.problems(), ["back: RPCs did not settle on a"]);
    let failing = summary(&[(0, 2000, "a-1"), (2000, 3900, "c-1"), (3900, 4000, "!"), (4000, 6000, "a-1")]);
    assert_eq!(failing.problems(), ["down: RPCs did not settle on c"]);
}

#[test]
fn answers_from_elsewhere_are_a_problem() {
    let early = summary(&[(0, 500, "c-1"), (500, 2000, "a-1"), (2000, 4000, "c-1"), (4000, 6000, "a-1")]);
    assert_eq!(early.problems(), ["up: RPCs went astray to c"]);
    // B may answer on the way back only.
    let detour = summary(&[(0, 2000, "a-1"), (2000, 2500, "b-1"), (2500, 4000, "c-1"), (4000, 6000, "a-1")]);
    assert_eq!(detour.problems(), ["down: RPCs went astray to b"]);
}

#[test]
fn phases_that_were_not_played_are_a_problem() {
    let samples = samples(100, &[(0, 2000, "a-1")]);
    let summary = Summary::new(&PHASES, &PLAYED[..1], &members(), &samples);
    assert_eq!(summary.problems(), ["down: was not played", "back: was not played"]);
}

#[test]
fn an_empty_input_is_a_problem_and_does_not_panic() {
    assert_eq!(summary(&[]).problems().len(), 3);
    let nothing = Summary::new(&PHASES, &[], &members(), &[]);
    assert_eq!(nothing.problems().len(), 3);
    assert!(nothing.to_string().contains("0 (0 answered, 0 failed)"));
}

#[test]
fn several_groups_must_all_answer_and_a_group_that_leaves_must_be_gone() {
    static PHASES: [Phase; 3] = [
        Phase { title: "both", acts: &[], expect: &[A, C], via: &[], share: 1 },
        Phase { title: "one", acts: &[], expect: &[A], via: &[], share: 1 },
        Phase { title: "both again", acts: &[], expect: &[A, C], via: &[], share: 1 },
    ];
    let summary =
        |parts: &[(u64, u64, &str)]| Summary::new(&PHASES, &PLAYED, &members(), &samples(100, parts));
    let good = summary(&[
        (0, 1000, "a-1"),
        (1000, 2000, "c-1"),
        (2000, 2500, "!"),
        (2500, 4300, "a-1"),
        (4300, 4600, "c-1"),
        (4600, 6000, "a-1"),
    ]);
    assert_eq!(good.problems(), [""; 0]);
    let after: Vec<_> = good.moves.iter().map(|m| m.after).collect();
    assert_eq!(after, [1000, 400, 300].map(|ms| Some(Duration::from_millis(ms))));
    assert!(good.to_string().contains("both again                               a+c "), "{good}");
    let never_back = summary(&[(0, 1000, "a-1"), (1000, 2000, "c-1"), (2000, 6000, "a-1")]);
    assert_eq!(never_back.problems(), ["both again: c answered no RPC"]);
    let still_there =
        summary(&[(0, 1000, "a-1"), (1000, 2000, "c-1"), (2000, 3900, "a-1"), (3900, 6000, "c-1")]);
    assert_eq!(still_there.problems().first().map(String::as_str), Some("one: RPCs did not settle on a"));
}

#[test]
fn failures_of_the_phases_add_up_to_those_of_the_summary() {
    let mut samples =
        samples(100, &[(0, 2000, "a-1"), (2000, 2300, "!"), (2300, 4000, "c-1"), (4000, 6000, "a-1")]);
    let failure = |at, user| {
        let outcome = Outcome::Failed(Code::Unavailable, "late".into());
        Sample { at: Duration::from_millis(at), user, outcome }
    };
    // One of a session, and one that ended after the last phase.
    samples.push(failure(4010, Some(1)));
    samples.push(failure(6010, None));
    samples.sort_by_key(|sample| sample.at);
    let summary = Summary::new(&PHASES, &PLAYED, &members(), &samples);
    assert_eq!(summary.moves.iter().map(|m| m.failed).collect::<Vec<_>>(), [0, 3, 2]);
    assert!(summary.to_string().contains("5 failed"), "{summary}");
}

#[test]
fn a_backend_without_the_last_certificate_is_a_problem() {
    let good = || summary(&[(0, 2000, "a-1"), (2000, 4000, "c-1"), (4000, 6000, "a-1")]);
    let handshakes = |outdated: &[&str]| {
        let outdated = outdated.iter().map(ToString::to_string).collect();
        Some(Handshakes { connections: 9, refused: 2, outdated })
    };
    let rotated = good().with_handshakes(handshakes(&[]));
    assert_eq!(rotated.problems(), [""; 0]);
    let line = "TLS          9 connections to backends, 2 of them refused in the handshake";
    assert!(rotated.to_string().contains(line), "{rotated}");
    let outdated = good().with_handshakes(handshakes(&["a-1"]));
    assert_eq!(outdated.problems(), ["TLS: a-1 was never reached with the client's last certificate"]);
}
