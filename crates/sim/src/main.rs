//! Runs the simulator over many seeds, or over one with its trace.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use proxyless_sim::minimise::minimise;
use proxyless_sim::run::{Trace, run, script};

/// Runs the cores of proxyless in simulated worlds, one per seed, and checks what they do.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// Print everything that happens; with --seed.
    #[arg(long, requires = "seed")]
    trace: bool,
}

fn main() -> io::Result<ExitCode> {
    let options = Options::parse();
    let mut out = io::stdout().lock();
    if let (Some(seed), true) = (options.seed, options.trace) {
        return trace(seed, &mut out);
    }
    let seeds = options.seed.map_or(options.from..options.from + options.seeds, |seed| seed..seed + 1);
    let mut failures = 0u64;
    for seed in seeds {
        if run(&script(seed), Trace::Off).is_err() {
            failures += 1;
            explain(seed, &mut out)?;
        }
    }
    writeln!(out, "{failures} seeds failed")?;
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn trace(seed: u64, out: &mut impl Write) -> io::Result<ExitCode> {
    let world = script(seed);
    writeln!(out, "{world:#?}")?;
    match run(&world, Trace::On) {
        Ok(report) => {
            writeln!(out, "{report:?}")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            failure.trace.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            writeln!(out, "{:?} {}", failure.at, failure.violation)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The shortest script that fails like the seed's.
fn explain(seed: u64, out: &mut impl Write) -> io::Result<()> {
    let Some((script, failure)) = minimise(&script(seed)) else {
        return writeln!(out, "seed {seed} fails, but not twice: something is not deterministic");
    };
    writeln!(out, "seed {seed}: at {:?}: {}", failure.at, failure.violation)?;
    writeln!(out, "settings: {:?}\nmesh: {:#?}", script.settings, script.mesh)?;
    script.steps.iter().try_for_each(|step| writeln!(out, "{:?} {:?}", step.at, step.action))?;
    writeln!(out, "what happened:")?;
    failure.trace.iter().try_for_each(|line| writeln!(out, "  {line}"))
}
