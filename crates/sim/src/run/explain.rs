//! The human-readable text of a failing seed.

use crate::run::minimise::minimise;
use crate::run::{Failure, script};
use crate::script::Script;
use crate::script::config::Mesh;

/// Longer lines are truncated.
const WIDTH: usize = 300;

/// The minimised script of a failing seed, and the last `lines` lines of its trace.
#[must_use]
pub fn explain(seed: u64, lines: usize) -> String {
    let whole = script(seed);
    match minimise(&whole) {
        Some((short, failure)) => text(&whole, &short, &failure, lines),
        None => format!("seed {seed} fails only sometimes: its world is not deterministic"),
    }
}

fn text(whole: &Script, short: &Script, failure: &Failure, lines: usize) -> String {
    let (seed, resources) = (whole.seed, entries(&short.mesh));
    let (steps, all_steps, all_resources) =
        (short.steps.len(), whole.steps.len(), entries(&whole.mesh).len());
    let mut text = vec![
        format!("seed {seed} breaks a rule: {}", failure.violation),
        format!("{steps} of {all_steps} steps and {} of {all_resources} resources suffice:", resources.len()),
        format!("{:?}", short.settings),
    ];
    text.extend(resources);
    text.extend(short.steps.iter().map(|step| format!("{:?} {:?}", step.at, step.action)));
    let skipped = failure.trace.len().saturating_sub(lines);
    text.push(match skipped {
        0 => "log:".to_owned(),
        _ => format!("log without its first {skipped} lines (see --lines):"),
    });
    text.extend(failure.trace.iter().skip(skipped).map(|line| format!("  {line}")));
    text.extend(failure.trees.iter().flat_map(|tree| tree.lines()).map(|line| format!("  {line}")));
    text.push(format!("{:?} {}", failure.at, failure.violation.rule));
    text.push(format!("repeat it with: proxyless-sim --seed {seed}"));
    let lines: Vec<String> = text.iter().map(|line| cut(line)).collect();
    lines.join("\n  ")
}

/// A line for each resource and each host.
fn entries(mesh: &Mesh) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(mesh.listeners.iter().map(|(name, value)| format!("listener {name}: {value:?}")));
    lines.extend(mesh.routes.iter().map(|(name, value)| format!("routes {name}: {value:?}")));
    lines.extend(mesh.clusters.iter().map(|(name, value)| format!("cluster {name}: {value:?}")));
    lines.extend(mesh.assignments.iter().map(|(name, value)| format!("endpoints {name}: {value:?}")));
    lines.extend(mesh.lists.iter().map(|(name, value)| format!("list {name}: {value:?}")));
    lines.extend(mesh.hosts.iter().map(|(name, value)| format!("host {name}: {value:?}")));
    lines
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proxyless_sans_io::Time;

    use super::*;
    use crate::laws::invariants::Violation;

    #[test]
    fn a_failure_fits_on_a_screen() {
        let whole = script(7);
        let short = Script { steps: whole.steps.iter().take(2).cloned().collect(), ..whole.clone() };
        let violation = Violation::new("nothing panics", "x".repeat(10_000));
        let trace = (0..500).map(|line| format!("line {line}")).collect();
        let trees = vec!["tree".to_owned()];
        let text = text(&whole, &short, &Failure { violation, at: Time::ZERO, trace, trees }, 3);
        assert!(text.starts_with("seed 7 breaks a rule: nothing panics: xxx"), "{text}");
        assert!(text.contains(&format!("2 of {} steps", whole.steps.len())), "{text}");
        assert!(text.contains("log without its first 497 lines"), "{text}");
        assert!(text.contains("\n    tree\n"), "{text}");
        assert!(!text.contains("line 496") && text.contains("line 497"), "{text}");
        assert!(text.ends_with("repeat it with: proxyless-sim --seed 7"), "{text}");
        assert!(text.lines().count() < 50 && text.lines().all(|line| line.chars().count() < 310), "{text}");
    }
}
