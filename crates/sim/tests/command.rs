//! The command `proxyless-sim`, as a process.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_proxyless-sim")).args(arguments).output();
    output.expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn seeds_run_on_several_threads_and_are_counted() {
    let output = sim(&["--from", "40", "--seeds", "6", "--jobs", "3"]);
    let text = text(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("seeds 40..46; repeat one with: proxyless-sim --seed 40\n"), "{text}");
    assert!(text.contains("6 seeds from 40 in ") && text.ends_with(": 0 failed\n"), "{text}");
}

#[test]
fn fresh_seeds_are_printed() {
    let output = sim(&["--fresh", "--seeds", "1"]);
    let text = text(&output.stdout);
    assert!(output.status.success(), "{text}");
    let first = text.strip_prefix("seeds ").and_then(|rest| rest.split_once("..")).expect("seeds").0;
    assert!(text.contains(&format!("1 seeds from {first} in ")), "{text}");
}

#[test]
fn one_seed_is_traced() {
    let output = sim(&["--seed", "3", "--trace"]);
    let text = text(&output.stdout);
    assert!(output.status.success() && text.contains("seed: 3,"), "{text}");
}

#[test]
fn bad_arguments_are_explained() {
    for (arguments, why) in [
        (&["--seeds", "0"][..], "0 is not in 1.."),
        (&["--fresh", "--from", "1"], "'--fresh' cannot be used with '--from"),
        (&["--seed", "1", "--jobs", "2"], "cannot be used with"),
        (&["--trace"], "--seed <SEED>"),
        (&["--from", "18446744073709551615"], "1000 seeds from 18446744073709551615 exceed"),
    ] {
        let output = sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}
