//! `inner guard`: instructions, allocations and memory against checked-in bounds. Unlike times, they are nearly the same
//! on every machine, apart from compilers and allocators, and so suitable for CI.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};

use crate::alloc::allocations;
use crate::count::Case;
use crate::finish;
use crate::memory;
use crate::mesh::Policy;
use crate::report::Report;
use crate::shared;

/// CI interprets this as "could not be checked".
const SKIPPED: u8 = 77;

#[derive(Serialize, Deserialize)]
struct Bounds {
    bounds: Vec<Bound>,
}

#[derive(Serialize, Deserialize)]
struct Bound {
    measure: String,
    /// The bounded number.
    about: String,
    at_most: u64,
}

/// The count.
struct Counted {
    measure: String,
    about: String,
    value: u64,
}

pub(crate) fn run(report: &mut Report, write: bool, path: &Path) -> ExitCode {
    let allocations: Result<Vec<Counted>, String> = Case::GUARDED.into_iter().map(allocations_of).collect();
    let mut counted = match allocations {
        Ok(counted) => counted,
        Err(why) => return finish(Err(why)),
    };
    counted.extend(memory::bounded().map(|(name, meaning, value)| Counted {
        measure: format!("memory/{name}/bytes"),
        about: format!("bytes {meaning}"),
        value,
    }));
    let instructions: Result<Vec<Counted>, String> = Case::GUARDED.into_iter().map(instructions_of).collect();
    let shared: Result<Vec<Counted>, String> = SHARED.iter().map(shared_lines_of).collect();
    let missing = match instructions.and_then(|instructions| Ok((instructions, shared?))) {
        Ok((instructions, shared)) => {
            counted.extend(instructions);
            counted.extend(shared);
            None
        }
        Err(why) => Some(why),
    };
    if write {
        if let Some(why) = missing {
            eprintln!("bounds not written: {why}");
            return ExitCode::from(SKIPPED);
        }
        return finish(write_bounds(path, &counted));
    }
    match (compare(report, path, &counted), missing) {
        (Ok(true), None) => ExitCode::SUCCESS,
        (Ok(true), Some(why)) => {
            eprintln!("instructions not counted: {why}");
            ExitCode::from(SKIPPED)
        }
        (Ok(false), _) => ExitCode::FAILURE,
        (Err(why), _) => finish(Err(why)),
    }
}

fn allocations_of(case: Case) -> Result<Counted, String> {
    let mut once = case.prepare().map_err(|error| error.to_string())?;
    // Changed and changed back once, so that buffers have their final size.
    once();
    once();
    let before = allocations();
    once();
    once();
    Ok(counted(case, "allocations", (allocations() - before) / 2))
}

/// The difference of two runs, which excludes the setup.
fn instructions_of(case: Case) -> Result<Counted, String> {
    let [few, many] = case.iterations();
    let difference = callgrind(case, many)?.saturating_sub(callgrind(case, few)?);
    Ok(counted(case, "instructions", difference / (many - few) as u64))
}

/// The policies whose RPCs must not contend. The round_robin of each of the three localities has one line that threads
/// share as long as they do not race for it: the position of the strict order.
const SHARED: [(Policy, &str); 2] = [(Policy::PickFirst, "pick_first"), (Policy::RoundRobin, "round_robin")];

fn shared_lines_of((policy, name): &(Policy, &str)) -> Result<Counted, String> {
    Ok(Counted {
        measure: format!("rpc/{name}/shared_lines"),
        about: format!(
            "cache lines that RPCs of two threads both write, without IO, with {name}, load reports and outlier detection"
        ),
        value: shared::count(*policy)?,
    })
}

fn counted(case: Case, what: &str, value: u64) -> Counted {
    Counted {
        measure: format!("{}/{what}", case.label()),
        about: format!("{what} of {}", case.meaning()),
        value,
    }
}

fn callgrind(case: Case, iterations: usize) -> Result<u64, String> {
    use clap::ValueEnum as _;
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find the own executable: {error}"))?;
    let name = case.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["count", &name, "--iterations", &iterations.to_string()])
        .output()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => "valgrind is not installed".to_owned(),
            _ => format!("valgrind could not be run: {error}"),
        })?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("the run under valgrind failed: {text}"));
    }
    let collected = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    collected.ok_or_else(|| format!("valgrind did not count: {text}"))
}

/// Whether all counts are within their bounds.
fn compare(report: &mut Report, path: &Path, counted: &[Counted]) -> Result<bool, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let Bounds { bounds } = serde_json::from_str(&text)
        .map_err(|error| format!("{} is not a list of bounds: {error}", path.display()))?;
    let mut good = true;
    for Counted { measure, value, .. } in counted {
        let bound = bounds.iter().find(|bound| bound.measure == *measure);
        let Some(at_most) = bound.map(|bound| bound.at_most) else {
            good = false;
            eprintln!("{measure}: {value}, without a bound");
            continue;
        };
        report.case(measure, &[("counted", "", *value as f64), ("at_most", "", at_most as f64)]);
        if *value > at_most {
            good = false;
            eprintln!("{measure}: {value} exceeds its bound, {at_most}");
        }
    }
    Ok(good)
}

fn write_bounds(path: &Path, counted: &[Counted]) -> Result<(), String> {
    let bound = |Counted { measure, about, value }: &Counted| Bound {
        measure: measure.clone(),
        about: about.clone(),
        // Some slack for other compilers and libraries; none where the bound is zero.
        at_most: value + value / 10,
    };
    let bounds = Bounds { bounds: counted.iter().map(bound).collect() };
    let text = serde_json::to_string_pretty(&bounds).map_err(|error| error.to_string())?;
    std::fs::write(path, text + "\n").map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_a_bound() {
        let text = include_str!("../../../bounds.json");
        let Bounds { bounds } = serde_json::from_str(text).unwrap();
        let counts = Case::GUARDED
            .iter()
            .flat_map(|case| ["allocations", "instructions"].map(|what| format!("{}/{what}", case.label())));
        let shared = SHARED.iter().map(|(_, name)| format!("rpc/{name}/shared_lines"));
        let missing: Vec<_> = counts
            .chain(shared)
            .filter(|measure| !bounds.iter().any(|bound| bound.measure == *measure))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
