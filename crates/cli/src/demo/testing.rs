//! Fixtures for the demo's tests: two groups, and samples on a timetable.

use std::time::Duration;

use tonic::Code;

use super::load::{Outcome, Sample};
use super::mesh::{Condition, Group, Member};

pub(super) const A: Group = Group { name: "a", size: 2 };
pub(super) const B: Group = Group { name: "b", size: 1 };
pub(super) const C: Group = Group { name: "c", size: 1 };

pub(super) fn members() -> Vec<Member> {
    [("a-1", A), ("a-2", A), ("b-1", B), ("c-1", C)]
        .map(|(name, group)| Member { name: name.into(), group, condition: Condition::Up })
        .into()
}

/// One sample every so many milliseconds: start, end, group (`!` fails).
pub(super) fn samples(every: usize, parts: &[(u64, u64, &str)]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (from, to, who) in parts {
        for at in (*from..*to).step_by(every) {
            let outcome = match *who {
                "!" => Outcome::Failed(Code::Unavailable, format!("at {at}")),
                name => Outcome::Answered(name.into()),
            };
            samples.push(Sample { at: Duration::from_millis(at), user: None, outcome });
        }
    }
    samples
}
