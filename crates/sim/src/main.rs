//! Runs the simulator over many seeds, or over one with its trace.

use std::io;
use std::process::ExitCode;

use clap::Parser;

use self::command::Options;

// The command uses the clock and entropy; worlds use neither.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
mod command;

fn main() -> io::Result<ExitCode> {
    let options = Options::parse();
    proxyless_sim::run::keep_panics_quiet();
    command::run(&options, &mut io::stdout().lock())
}
