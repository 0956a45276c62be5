//! The command `proxyless-sim`.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use proxyless_sim::run::explain;
use proxyless_sim::run::{Trace, check, run as run_script, script};

use self::batch::{Batch, News};

mod batch;

/// Random first seeds are a multiple of this, for readability.
const ROUND: u64 = 1_000;

/// Runs the cores of proxyless in simulated worlds, one per seed, and checks every rule.
///
/// Fails if a world breaks a rule, and prints the shortest world found that breaks it.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Options {
    /// Number of seeds to run.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed [default: 0].
    #[arg(long, value_name = "SEED", conflicts_with = "fresh")]
    from: Option<u64>,
    /// Start with a random seed, which is printed.
    #[arg(long)]
    fresh: bool,
    /// Run this seed only.
    #[arg(long, conflicts_with_all = ["seeds", "from", "fresh", "jobs", "minutes"])]
    seed: Option<u64>,
    /// Print the script and the log; with --seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Number of seeds that run in parallel [default: one per core].
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Stop after this many minutes, even if not all seeds have run.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: Option<u64>,
    /// Number of log lines to print of a failing seed.
    #[arg(long, value_name = "N", default_value_t = 40)]
    lines: usize,
}

impl Options {
    /// The seeds to run.
    fn range(&self) -> Result<Range<u64>, String> {
        let from = match (self.seed, self.fresh) {
            (Some(seed), _) => seed,
            // The keys of a RandomState are random.
            (None, true) => RandomState::new().hash_one("seed") % 1_000_000_000 * ROUND,
            (None, false) => self.from.unwrap_or(0),
        };
        let seeds = if self.seed.is_some() { 1 } else { self.seeds };
        let end = from
            .checked_add(seeds)
            .ok_or_else(|| format!("{seeds} seeds from {from} exceed the range of seeds"))?;
        Ok(from..end)
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> io::Result<ExitCode> {
    if let (Some(seed), true) = (options.seed, options.trace) {
        return trace(seed, out);
    }
    let seeds = match options.range() {
        Ok(seeds) => seeds,
        Err(why) => Options::command().error(ErrorKind::ValueValidation, why).exit(),
    };
    let jobs = options.jobs.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let Range { start, end } = seeds;
    if options.seed.is_none() {
        writeln!(out, "seeds {start}..{end}; repeat one with: proxyless-sim --seed {start}")?;
    }
    let batch =
        Batch { seeds, jobs, limit: options.minutes.map(|minutes| Duration::from_secs(minutes * 60)) };
    let shorten = |seed| explain(seed, options.lines);
    let summary = batch.run(check, shorten, |news| match news {
        News::Failed { text } => writeln!(out, "{text}\n"),
        News::Again { seed, rule } => writeln!(out, "seed {seed} also breaks \"{rule}\""),
        News::Progress { done, failed, rate } => {
            writeln!(out, "{done} of {} seeds, {rate:.0}/s, {failed} failed", end - start)?;
            out.flush()
        }
        News::Slow { seed, since } => writeln!(out, "seed {seed} has been running for {} s", since.as_secs()),
    })?;
    for (rule, seeds) in &summary.broken {
        writeln!(out, "{seeds} seeds break \"{rule}\"")?;
    }
    let (done, failed, seconds) = (summary.done, summary.failed, summary.took.as_secs_f64());
    if options.seed.is_none() {
        let rate = done as f64 / seconds.max(0.001);
        writeln!(out, "{done} seeds from {start} in {seconds:.0} s ({rate:.0}/s): {failed} failed")?;
    } else {
        writeln!(out, "{failed} seeds failed")?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the script and the log of one seed.
fn trace(seed: u64, out: &mut impl Write) -> io::Result<ExitCode> {
    let world = script(seed);
    writeln!(out, "{world:#?}")?;
    match run_script(&world, Trace::On) {
        Ok(report) => {
            writeln!(out, "{report:?}")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            failure.trace.iter().chain(&failure.trees).try_for_each(|line| writeln!(out, "{line}"))?;
            writeln!(out, "{:?} {}", failure.at, failure.violation)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, ErrorKind> {
        let command = std::iter::once(&"proxyless-sim").chain(arguments);
        Options::try_parse_from(command).map_err(|error| error.kind())
    }

    fn range(arguments: &[&str]) -> Result<Range<u64>, String> {
        parse(arguments).expect("options").range()
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for arguments in [
            &["--fresh", "--from", "1"][..],
            &["--seed", "1", "--from", "1"],
            &["--seed", "1", "--fresh"],
            &["--seed", "1", "--seeds", "2"],
            &["--seed", "1", "--jobs", "2"],
            &["--seed", "1", "--minutes", "2"],
        ] {
            assert_eq!(parse(arguments).err(), Some(ErrorKind::ArgumentConflict), "{arguments:?}");
        }
        assert_eq!(parse(&["--trace"]).err(), Some(ErrorKind::MissingRequiredArgument));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for arguments in [
            ["--seeds", "0"],
            ["--jobs", "0"],
            ["--minutes", "0"],
            ["--seeds", "-1"],
            ["--seeds", "many"],
            ["--seed", "18446744073709551616"],
        ] {
            assert!(parse(&arguments).is_err(), "{arguments:?}");
        }
        let too_many = range(&["--from", "18446744073709551615", "--seeds", "1"]);
        assert_eq!(too_many, Err("1 seeds from 18446744073709551615 exceed the range of seeds".to_owned()));
    }

    #[test]
    fn the_seeds_are_those_that_were_asked_for() {
        assert_eq!(range(&[]), Ok(0..1_000));
        assert_eq!(range(&["--from", "7", "--seeds", "3"]), Ok(7..10));
        assert_eq!(range(&["--seed", "7"]), Ok(7..8));
        let fresh = || range(&["--fresh", "--seeds", "5"]).expect("seeds");
        let (one, two) = (fresh(), fresh());
        assert_eq!((one.start % ROUND, one.end - one.start), (0, 5));
        // Fails once in 10^9 runs.
        assert_ne!(one, two, "seeds are fresh each time");
    }
}
