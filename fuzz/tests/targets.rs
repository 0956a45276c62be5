//! Runs every target over its corpus and over seeded mutations of it.
//!
//! `FUZZ_RUNS` sets the number of mutations of each target, `FUZZ_SEED` where their seeds begin.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use proxyless_fuzz::{TARGETS, Target};
use proxyless_sans_io::Rng;

mod mutate;
mod support;

/// Mutations of each target, unless `FUZZ_RUNS` says otherwise: a second or less, without optimisation.
const RUNS: u64 = 1000;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// Runs one input; a failure says how to repeat it.
#[allow(clippy::print_stderr)] // the output of a failing test
fn run(target: Target, origin: &str, data: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(data))) {
        let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("target {} failed on {origin}; the input in hex: {hex}", target.name);
        resume_unwind(panic);
    }
}

fn fuzz(name: &str) {
    let target = *TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    let seeds = support::corpus(name).expect("a corpus");
    assert!(!seeds.is_empty(), "an empty corpus");
    for (file, data) in &seeds {
        run(target, &format!("corpus/{name}/{file}"), data);
        for length in 0..data.len().min(300) {
            run(target, &format!("the first {length} bytes of corpus/{name}/{file}"), &data[..length]);
        }
    }
    let tokens = mutate::dictionary(name);
    let first = variable("FUZZ_SEED", 0);
    for seed in first..first.saturating_add(variable("FUZZ_RUNS", RUNS)) {
        let data = mutate::mutated(&seeds, &tokens, &mut Rng::new(seed));
        run(target, &format!("seed {seed} (FUZZ_SEED={seed} FUZZ_RUNS=1)"), &data);
    }
}

macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            fuzz(stringify!($name));
        })*

        #[test]
        fn every_target_has_a_test_and_a_binary() {
            let tested = [$(stringify!($name)),*];
            assert!(TARGETS.iter().map(|target| target.name).eq(tested));
            for target in TARGETS {
                let binary = support::path("libfuzzer/fuzz_targets").join(format!("{}.rs", target.name));
                assert!(binary.exists(), "{} is missing", binary.display());
            }
        }
    };
}

tests! {
    listener,
    route_configuration,
    cluster,
    endpoints,
    aggregate_cluster,
    wrapped,
    ads,
    lrs,
    orca,
    bootstrap,
    target_uri,
    grpc_framing,
    grpc_status,
    http2,
}
