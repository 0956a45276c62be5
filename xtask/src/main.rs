//! `cargo xtask`: writes the generated files in the repository, so that no build script needs more than its own
//! package.
//!
//! - `cargo xtask descriptors` writes `crates/control-plane/descriptors.bin.gz`. A test fails while that file is out of date.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line")]

mod descriptors;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["descriptors"] => descriptors::write(),
        _ => Err("usage: cargo xtask descriptors".into()),
    };
    match result {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}
