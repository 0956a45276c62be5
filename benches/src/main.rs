//! Measures proxyless beside its peers: builds the contestants, runs them in rounds, and prints ratios with their
//! spread.
//!
//! `cargo contest` (an alias of this workspace) runs everything; see `docs/performance.md`.

#![allow(clippy::print_stdout, reason = "a program whose output is its purpose")]

mod backends;
mod clock;
mod digest;
mod field;
mod machine;
mod measures;
mod program;
mod report;
mod results;
mod service;
mod stacks;
mod tls;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use digest::Digest;
use field::{Contestant, Tools};
use measures::{Group, Round};
use results::Results;
use service::BoxError;

/// The rounds of a run that can be judged.
const ROUNDS: usize = 5;

/// Measures proxyless beside its peers.
#[derive(Parser, Debug)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    /// The measures to run [default: all].
    #[arg(long, value_delimiter = ',')]
    only: Vec<Group>,
    /// Prefixes of the names of the contestants [default: all].
    #[arg(long, value_delimiter = ',')]
    contestants: Vec<String>,
    /// The number of rounds.
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// The duration of a rate measurement, in seconds.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// The JSON file for the samples.
    #[arg(long, default_value = "target/contest.json")]
    json: PathBuf,
    /// Samples of an earlier run, for measures that do not run now.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Also keeps the results of this machine in `benches/results`, and updates the tables and the picture in `docs/`.
    #[arg(long)]
    docs: bool,
}

/// The other processes of a contest, which it starts, and what needs no contest.
#[derive(Subcommand, Debug)]
enum Role {
    /// Updates the tables and the picture in `docs/` from `benches/results`.
    Render,
    /// A contestant.
    #[command(hide = true)]
    Program(program::ProgramArgs),
    /// Backends.
    #[command(hide = true)]
    Backends(backends::BackendArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.role {
        Some(Role::Program(args)) => program::run(args).await,
        Some(Role::Backends(args)) => backends::run(args).await,
        Some(Role::Render) => report::render(),
        None => contest(cli).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn contest(cli: Cli) -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().init();
    if !cfg!(target_os = "linux") {
        return Err(
            "the contest needs Linux: it reads the CPU clocks and the memory of other processes".into()
        );
    }
    let wanted = Contestant::by_names(&cli.contestants)?;
    tracing::info!("building the contestants");
    let tools = Tools::build(&wanted).await?;
    let mut results = Results::default();
    for contestant in &wanted {
        if let Some(why) = tools.missing(*contestant) {
            println!("{contestant} is MISSING: {why}");
            results.missing.insert(*contestant, why.to_owned());
        }
    }
    let contestants: Vec<_> = wanted.into_iter().filter(|who| tools.missing(*who).is_none()).collect();
    let groups = if cli.only.is_empty() { Group::value_variants().to_vec() } else { cli.only };
    for number in 1..=cli.rounds {
        for group in &groups {
            tracing::info!("round {number} of {}: {group:?}", cli.rounds);
            results.round = number;
            let mut round = Round {
                tools: &tools,
                contestants: &contestants,
                number,
                seconds: cli.seconds,
                results: &mut results,
            };
            group.run(&mut round).await?;
        }
    }
    if let Some(earlier) = &cli.keep {
        results.keep(&serde_json::from_str(&std::fs::read_to_string(earlier)?)?);
    }
    let digest = Digest::of(&results, cli.rounds);
    println!("Machine: {}.\n\n{}", digest.machine, report::tables(&digest));
    println!("{}\n{}", report::verdicts(&digest), report::ahead(&digest));
    if cli.rounds < ROUNDS {
        println!("not for judgement: {} of {ROUNDS} rounds", cli.rounds);
    }
    for failure in &results.failures {
        println!("failed: {failure}");
    }
    std::fs::write(&cli.json, serde_json::to_string_pretty(&results.to_json())?)?;
    std::fs::write(cli.json.with_extension("svg"), report::chart(&digest))?;
    println!("samples: {}, picture: {}", cli.json.display(), cli.json.with_extension("svg").display());
    if cli.docs {
        report::store(&digest)?;
        report::render()?;
    }
    // A failure of a peer is a result; our own failure is an error.
    let own = results.failures.iter().find(|failure| failure.contains(Contestant::Proxyless.name()));
    own.map_or(Ok(()), |failure| Err(failure.clone().into()))
}
