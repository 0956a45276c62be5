//! The summary, as a pure function of the samples: times, counts, and whether RPCs moved as the scenario expects.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tonic::Code;

use crate::text::safe;

use super::certificates::Handshakes;
use super::load::{Outcome, Sample, between, settled_in};
use super::mesh::{Group, Member, names};
use super::reports::{HEADER, Reports};
use super::scenario::Phase;
use super::sessions::{self, Session, sessions};
use super::timeline::{WIDTH, rows, timeline};

/// The start and end of a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Played {
    pub(super) begin: Duration,
    pub(super) end: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Summary {
    moves: Vec<Move>,
    answered: Vec<(String, usize)>,
    failed: BTreeMap<i32, (usize, String)>,
    /// One row; where several groups answer at the same time, one for each of them and one for failures.
    timeline: Vec<String>,
    span: Duration,
    sessions: Vec<Session>,
    reports: Option<Reports>,
    handshakes: Option<Handshakes>,
    problems: Vec<String>,
}

/// The result of a phase.
#[derive(Clone, Debug)]
struct Move {
    title: &'static str,
    to: &'static [Group],
    /// The time until all of them have answered; where they all did before, until the last answer from elsewhere.
    after: Option<Duration>,
    /// RPCs with and without a session, until the start of the next phase.
    failed: usize,
    longest_pause: Duration,
}

impl Summary {
    /// `played` has the phases that were played, which may be fewer than `phases`.
    pub(super) fn new(phases: &[Phase], played: &[Played], members: &[Member], samples: &[Sample]) -> Self {
        let span = played.last().map_or(Duration::ZERO, |last| last.end);
        let plain: Vec<_> = samples.iter().filter(|sample| sample.user.is_none()).cloned().collect();
        let mut moves = Vec::new();
        let mut problems = Vec::new();
        let mut before: &[Group] = &[];
        for (at, (phase, played_phase)) in phases.iter().zip(played).enumerate() {
            // RPCs between two phases, and those that end after the last one, belong to a phase too.
            let from = if at == 0 { Duration::ZERO } else { played_phase.begin };
            let to = played.get(at + 1).map_or(Duration::MAX, |next| next.begin);
            let failed = between(samples, from, to).iter().filter(|sample| sample.is_failure()).count();
            moves.push(Move::new(phase, before, *played_phase, members, &plain, failed));
            problems.extend(verdict(phase, before, *played_phase, members, samples));
            before = phase.expect;
        }
        for phase in phases.iter().skip(played.len()) {
            problems.push(format!("{}: was not played", phase.title));
        }
        problems.extend(sessions::problems(phases, played, members, samples));
        Self {
            moves,
            answered: answered(members, samples),
            failed: failed(samples),
            timeline: if phases.iter().any(|phase| phase.expect.len() > 1) {
                rows(&groups(members), members, &plain, span)
            } else {
                vec![timeline(members, &plain, span).into_iter().map(|cell| cell.letter()).collect()]
            },
            span,
            sessions: sessions(samples),
            reports: None,
            handshakes: None,
            problems,
        }
    }

    /// Adds the load reports, with their problems.
    pub(super) fn with_reports(mut self, reports: Reports) -> Self {
        self.problems.extend(reports.problems());
        self.reports = Some(reports);
        self
    }

    /// Adds the handshakes of a mesh with TLS, with their problems.
    pub(super) fn with_handshakes(mut self, handshakes: Option<Handshakes>) -> Self {
        self.problems.extend(handshakes.iter().flat_map(Handshakes::problems));
        self.handshakes = handshakes;
        self
    }

    /// All deviations from the expectations.
    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }
}

impl Move {
    fn new(
        phase: &Phase,
        before: &[Group],
        Played { begin, end }: Played,
        members: &[Member],
        samples: &[Sample],
        failed: usize,
    ) -> Self {
        let during = between(samples, begin, end);
        let is_new = !phase.expect.iter().all(|group| before.contains(group));
        let first =
            |group: &Group| Some(during.iter().find(|sample| sample.group(members) == Some(*group))?.at);
        let is_elsewhere =
            |sample: &&Sample| sample.group(members).is_none_or(|group| !phase.expect.contains(&group));
        let at = if is_new {
            phase.expect.iter().map(first).collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max())
        } else {
            Some(during.iter().rfind(is_elsewhere).map_or(begin, |sample| sample.at))
        };
        Self {
            title: phase.title,
            to: phase.expect,
            after: at.map(|at| at.saturating_sub(begin)),
            failed,
            longest_pause: longest_pause(samples, begin, end),
        }
    }
}

/// The problems of a phase. `before` are the groups expected until then.
fn verdict(
    phase: &Phase,
    before: &[Group],
    Played { begin, end }: Played,
    members: &[Member],
    samples: &[Sample],
) -> Vec<String> {
    let Phase { title, expect, .. } = phase;
    let during = between(samples, begin, end);
    let answered_by =
        |group| during.iter().any(|sample| sample.user.is_none() && sample.group(members) == Some(group));
    let silent: Vec<Group> = expect.iter().copied().filter(|group| !answered_by(*group)).collect();
    let mut problems = Vec::new();
    if !silent.is_empty() {
        problems.push(format!("{title}: {} answered no RPC", names(&silent)));
    } else if !settled_in(expect, members, samples, begin, end) {
        problems.push(format!("{title}: RPCs did not settle on {}", names(expect)));
    }
    let mut astray = groups(members);
    astray.retain(|group| ![expect, before, phase.via].iter().any(|groups| groups.contains(group)));
    for group in astray.into_iter().filter(|group| answered_by(*group)) {
        problems.push(format!("{title}: RPCs went astray to {group}"));
    }
    problems
}

fn groups(members: &[Member]) -> Vec<Group> {
    let mut groups: Vec<Group> = members.iter().map(|member| member.group).collect();
    groups.dedup();
    groups
}

fn answered(members: &[Member], samples: &[Sample]) -> Vec<(String, usize)> {
    let by = |name: &str| samples.iter().filter(|s| s.outcome == Outcome::Answered(name.into())).count();
    members.iter().map(|member| (member.name.clone(), by(&member.name))).collect()
}

/// Failures by code, with the first message of each.
fn failed(samples: &[Sample]) -> BTreeMap<i32, (usize, String)> {
    let mut failed = BTreeMap::new();
    for sample in samples {
        if let Outcome::Failed(code, message) = &sample.outcome {
            failed.entry(*code as i32).or_insert_with(|| (0, message.clone())).0 += 1;
        }
    }
    failed
}

/// The longest time without an answer that ended in this period, after the first answer.
fn longest_pause(samples: &[Sample], begin: Duration, end: Duration) -> Duration {
    let is_answer = |sample: &&Sample| !sample.is_failure();
    let mut last = between(samples, Duration::ZERO, begin).iter().rfind(is_answer).map(|sample| sample.at);
    let mut longest = Duration::ZERO;
    let answers = between(samples, begin, end).iter().filter(is_answer).map(|sample| sample.at);
    for at in answers.chain([end]) {
        longest = longest.max(at.saturating_sub(last.unwrap_or(at)));
        last = Some(at);
    }
    longest
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<40} {:<10} {:>10} {:>7} {:>13}",
            "phase", "goes to", "after", "failed", "longest pause"
        )?;
        for Move { title, to, after, failed, longest_pause } in &self.moves {
            let (after, pause) = (time(*after), time(Some(*longest_pause)));
            writeln!(f, "{title:<40} {:<10} {after:>10} {failed:>7} {pause:>13}", names(to))?;
        }
        writeln!(f)?;
        let answered: usize = self.answered.iter().map(|(_, count)| count).sum();
        let failed: usize = self.failed.values().map(|(count, _)| count).sum();
        let backends: Vec<String> =
            self.answered.iter().map(|(name, count)| format!("{name} {count}")).collect();
        for row in &self.timeline {
            writeln!(f, "timeline     {row} {:.2} s each", (self.span / WIDTH).as_secs_f64())?;
        }
        writeln!(f, "RPCs         {} ({answered} answered, {failed} failed)", answered + failed)?;
        writeln!(f, "answered by  {}", backends.join(", "))?;
        for (code, (count, message)) in &self.failed {
            writeln!(f, "failed       {count} x {:?}, first: {}", Code::from_i32(*code), safe(message))?;
        }
        for session in &self.sessions {
            writeln!(f, "session      {session}")?;
        }
        if let Some(handshakes) = &self.handshakes {
            writeln!(f, "TLS          {handshakes}")?;
        }
        if let Some(reports) = &self.reports {
            writeln!(f, "\n{HEADER}\n{reports}")?;
        }
        for problem in &self.problems {
            writeln!(f, "PROBLEM      {problem}")?;
        }
        f.write_str("result       ")?;
        f.write_str(if self.problems.is_empty() { "RPCs moved as they should" } else { "FAILED" })
    }
}

fn time(time: Option<Duration>) -> String {
    time.map_or_else(|| "never".into(), |time| format!("{:.1} ms", time.as_secs_f64() * 1e3))
}
