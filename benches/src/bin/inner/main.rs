//! Measures the cores from inside, without any IO: picks, configuration updates, memory. The guard also counts RPCs of the
//! whole client.
//!
//! One thread drives an `XdsCore` and a `ChannelCore` with real encoded responses, as the drivers do. Times are CPU
//! times of the thread, which other work on the machine disturbs little; `guard` counts instructions instead, and
//! compares them with checked-in bounds.
// This program prints its results.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod alloc;
mod call;
mod clock;
mod count;
mod guard;
mod memory;
mod mesh;
mod pick;
mod policies;
mod report;
mod shared;
mod update;
mod world;

// Of the contest: its service and its backends.
#[path = "../../backends/answer.rs"]
mod answer;
#[path = "../../program/discard.rs"]
mod discard;
#[allow(dead_code, reason = "the contest uses all of it")]
#[path = "../../service.rs"]
mod service;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::count::Case;
use self::mesh::Policy;
use self::report::Report;

#[derive(Parser)]
#[command(about = "Measures picks, updates and memory of proxyless, without IO")]
struct Arguments {
    /// Prints one JSON object per line instead of a table.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The time of a pick through the full tree, with one and with two threads.
    Pick,
    /// The time of a pick of each policy alone, and of the full tree.
    Policies,
    /// The CPU time from the bytes of a response to the published picker, beside a full decode of the same bytes.
    Update {
        /// Skip cases with more endpoints than this.
        #[arg(long, default_value_t = 100_000)]
        largest: usize,
    },
    /// Bytes held per endpoint, cluster and channel.
    Memory,
    /// Runs one case without output, for callgrind.
    Count {
        case: Case,
        #[arg(long, default_value_t = 10)]
        iterations: usize,
    },
    /// The control plane and the backend of the cases with IO.
    #[command(hide = true)]
    Serve,
    /// Has two threads make calls in turns, for lackey.
    Shared { policy: Policy },
    /// Counts instructions, allocations, memory and shared cache lines, and fails if a bound is exceeded.
    Guard {
        /// Write new bounds instead: the current counts with some slack.
        #[arg(long)]
        write: bool,
        #[arg(long, default_value = "benches/bounds.json")]
        bounds: PathBuf,
    },
}

fn main() -> ExitCode {
    let Arguments { json, command } = Arguments::parse();
    let mut report = Report::new(json);
    match command {
        Command::Pick => pick::run(&mut report),
        Command::Policies => policies::run(&mut report),
        Command::Update { largest } => update::run(&mut report, largest),
        Command::Memory => memory::run(&mut report),
        Command::Count { case, iterations } => return finish(count::run(case, iterations)),
        Command::Serve => return finish(call::serve()),
        Command::Shared { policy } => shared::run(policy),
        Command::Guard { write, bounds } => return guard::run(&mut report, write, &bounds),
    }
    ExitCode::SUCCESS
}

fn finish<E: std::fmt::Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
