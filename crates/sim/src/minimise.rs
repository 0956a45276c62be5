//! Shortens the script of a failure.

use crate::run::{Failure, Trace, run};
use crate::script::Script;

/// Drops steps as long as the same rule is broken.
///
/// Gives the shortest script found and how it fails, with its trace; `None` if the script does not fail.
#[must_use]
pub fn minimise(script: &Script) -> Option<(Script, Box<Failure>)> {
    let rule = run(script, Trace::Off).err()?.violation.rule;
    let fails =
        |script: &Script| run(script, Trace::Off).is_err_and(|failure| failure.violation.rule == rule);
    let shortest = shorten(script.clone(), fails);
    let failure = run(&shortest, Trace::On).err()?;
    Some((shortest, failure))
}

/// Drops large pieces first, then smaller ones, down to single steps, until no step can go.
fn shorten(mut script: Script, fails: impl Fn(&Script) -> bool) -> Script {
    let mut size = script.steps.len().div_ceil(2);
    loop {
        let before = script.steps.len();
        let mut start = 0;
        while start < script.steps.len() {
            let mut candidate = script.clone();
            let end = (start + size).min(candidate.steps.len());
            candidate.steps.drain(start..end);
            if fails(&candidate) {
                script = candidate;
            } else {
                start += size;
            }
        }
        if size > 1 {
            size = size.div_ceil(2);
        } else if script.steps.len() == before {
            return script;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::script;
    use crate::script::{Action, Step};

    #[test]
    fn keeps_just_the_steps_that_a_failure_needs() {
        let is_change = |step: &&Step| matches!(step.action, Action::Set(_));
        let count = |script: &Script| script.steps.iter().filter(is_change).count();
        let long = (0..).map(script).find(|script| count(script) > 5).expect("a script with changes");
        let short = shorten(long, |script| count(script) >= 2);
        assert_eq!((short.steps.len(), count(&short)), (2, 2));
    }

    #[test]
    fn nothing_to_do_for_a_script_that_does_not_fail() {
        assert!(minimise(&script(0)).is_none());
    }
}
