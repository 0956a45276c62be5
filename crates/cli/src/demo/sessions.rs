//! The sessions of users, as a pure function of the samples.

use std::fmt;
use std::time::Duration;

use super::load::{Sample, between};
use super::mesh::{Member, group_of};
use super::scenario::{Act, Change, Phase};
use super::summary::Played;

/// The session of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    user: usize,
    /// Its hosts, in order, with the start of each.
    hosts: Vec<(Duration, String)>,
    answered: usize,
}

/// All sessions, by user.
pub(super) fn sessions(samples: &[Sample]) -> Vec<Session> {
    let users = samples.iter().filter_map(|sample| sample.user).max().map_or(0, |last| last + 1);
    let mut sessions: Vec<_> =
        (0..users).map(|user| Session { user, hosts: Vec::new(), answered: 0 }).collect();
    for sample in samples {
        let (Some(session), Some(host)) =
            (sample.user.and_then(|user| sessions.get_mut(user)), sample.answered_by())
        else {
            continue;
        };
        session.answered += 1;
        if session.hosts.last().is_none_or(|(_, last)| last != host) {
            session.hosts.push((sample.at, host.to_owned()));
        }
    }
    sessions
}

/// Sessions that left a usable host (A75), and those that were not served in a phase.
pub(super) fn problems(
    phases: &[Phase],
    played: &[Played],
    members: &[Member],
    samples: &[Sample],
) -> Vec<String> {
    let mut problems = Vec::new();
    for session in sessions(samples) {
        for ((_, from), (at, to)) in session.hosts.iter().zip(session.hosts.iter().skip(1)) {
            if !is_down(from, *at, phases, played, members) {
                let at = at.as_secs_f64();
                problems.push(format!(
                    "user {} left {from}, which was usable, for {to} at {at:.1} s",
                    session.user + 1
                ));
            }
        }
    }
    let mut users = 0;
    for (phase, Played { begin, end }) in phases.iter().zip(played) {
        users +=
            phase.acts.iter().map(|act| if let Act::LogIn(count) = act { *count } else { 0 }).sum::<usize>();
        for user in 0..users {
            let served = |sample: &Sample| sample.user == Some(user) && !sample.is_failure();
            if !between(samples, *begin, *end).iter().any(served) {
                problems.push(format!("{}: user {} got no answer", phase.title, user + 1));
            }
        }
    }
    problems
}

/// Whether the host was dead at this time.
fn is_down(host: &str, at: Duration, phases: &[Phase], played: &[Played], members: &[Member]) -> bool {
    let Some(group) = group_of(members, host) else { return false };
    let begun = phases.iter().zip(played).filter(|(_, played)| played.begin <= at);
    let acts = begun.flat_map(|(phase, _)| phase.acts);
    acts.fold(false, |down, act| match act {
        Act::Mesh(Change::Kill(killed)) if *killed == group => true,
        Act::Mesh(Change::Restart(restarted)) if *restarted == group => false,
        _ => down,
    })
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<&str> = self.hosts.iter().map(|(_, host)| host.as_str()).collect();
        write!(f, "user {} on {} ({} answers)", self.user + 1, hosts.join(", then "), self.answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::testing::{A, C, members, samples};

    static PHASES: [Phase; 2] = [
        Phase { title: "in", acts: &[Act::LogIn(1)], expect: &[A], via: &[], share: 1 },
        Phase { title: "down", acts: &[Act::Mesh(Change::Kill(A))], expect: &[C], via: &[], share: 1 },
    ];

    fn visits(parts: &[(u64, u64, &str)]) -> Vec<Sample> {
        let samples = samples(100, parts);
        samples.into_iter().map(|sample| Sample { user: Some(0), ..sample }).collect()
    }

    fn found(parts: &[(u64, u64, &str)]) -> Vec<String> {
        let played = |begin, end| Played { begin: Duration::from_secs(begin), end: Duration::from_secs(end) };
        problems(&PHASES, &[played(0, 2), played(2, 4)], &members(), &visits(parts))
    }

    #[test]
    fn a75_a_session_may_leave_a_dead_host_only() {
        let parts = [(0, 2000, "a-1"), (2000, 2200, "!"), (2200, 4000, "c-1")];
        assert_eq!(found(&parts), [""; 0]);
        let [session] = &sessions(&visits(&parts))[..] else { panic!("one user") };
        assert_eq!(session.to_string(), "user 1 on a-1, then c-1 (38 answers)");
        let left = found(&[(0, 1000, "a-1"), (1000, 2000, "a-2"), (2000, 4000, "c-1")]);
        assert_eq!(left, ["user 1 left a-1, which was usable, for a-2 at 1.0 s"]);
        let left = found(&[(0, 2000, "a-1"), (2000, 3000, "c-1"), (3000, 4000, "b-1")]);
        assert_eq!(left, ["user 1 left c-1, which was usable, for b-1 at 3.0 s"]);
    }

    #[test]
    fn a_user_without_answers_is_a_problem() {
        assert_eq!(found(&[(0, 2000, "a-1"), (2000, 4000, "!")]), ["down: user 1 got no answer"]);
        assert_eq!(found(&[]).len(), 2);
    }
}
