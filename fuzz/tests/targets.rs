//! Runs every target over its corpus and over seeded mutations of it.
//!
//! `FUZZ_RUNS` sets the number of mutations of each target, `FUZZ_SEED` their first seed. With `FUZZ_SECONDS` each
//! target runs for that long instead.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use proxyless_fuzz::{TARGETS, Target};
use proxyless_sans_io::Rng;

mod mutate;
mod support;

/// The default number of mutations per target: a second or less, without optimisation.
const RUNS: u64 = 1000;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// Runs one input; a failure prints how to repeat it.
#[allow(clippy::print_stderr)] // the output of a failing test
fn run(target: Target, origin: &str, data: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(data))) {
        let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("target {} failed on {origin}; the input in hex: {hex}", target.name);
        resume_unwind(panic);
    }
}

#[allow(clippy::print_stderr)] // how far a timed test came
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
    let tokens = target.dictionary.map(mutate::dictionary).unwrap_or_default();
    let first = variable("FUZZ_SEED", 0);
    let seconds = variable("FUZZ_SECONDS", 0);
    let (runs, limit) = match seconds {
        0 => (variable("FUZZ_RUNS", RUNS), None),
        _ => (variable("FUZZ_RUNS", u64::MAX), Some(Duration::from_secs(seconds))),
    };
    let started = Instant::now();
    for seed in first..first.saturating_add(runs) {
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            eprintln!("{name}: {} mutations from seed {first}", seed - first);
            return;
        }
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
                assert!(target.dictionary.is_none_or(|file| !mutate::dictionary(file).is_empty()));
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
    channel,
    lrs,
    orca,
    orca_trailer,
    session_cookie,
    grpc_trace_bin,
    bootstrap,
    target_uri,
    grpc_framing,
    grpc_status,
    frame_tap,
    http2,
    dns,
    certificate,
    trust_bundle_map,
    connect_response,
}
