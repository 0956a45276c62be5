//! The state at one time, as a picture or as a line.

use std::fmt::Write as _;
use std::time::Duration;

use proxyless::ChannelState;

use crate::demo::load::{Outcome, Sample, between};
use crate::demo::mesh::{Group, Member};
use crate::demo::timeline::{Cell, timeline};

/// The time over which rates are computed.
const WINDOW: Duration = Duration::from_secs(1);

const BAR_WIDTH: usize = 40;

/// The groups' colours, in order.
const COLOURS: [&str; 4] = ["32", "36", "35", "34"];

const GOOD: &str = "32";
const WAITING: &str = "33";
const BAD: &str = "31";

pub(crate) struct Frame<'a> {
    pub(crate) title: &'a str,
    pub(crate) state: ChannelState,
    pub(crate) members: &'a [Member],
    pub(crate) samples: &'a [Sample],
    pub(crate) now: Duration,
    /// The approximate duration of the demo.
    pub(crate) plan: Duration,
}

#[derive(Clone, Copy)]
pub(crate) enum Style {
    Colours,
    Plain,
}

impl Style {
    fn paint(self, colour: &str, text: &str) -> String {
        match self {
            Self::Colours => format!("\x1b[{colour}m{text}\x1b[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

impl Frame<'_> {
    pub(super) fn picture(&self, style: Style) -> String {
        let mut text = String::new();
        let mut line = |content: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{content}");
        };
        line(format!("{:5.1} s  {}", self.now.as_secs_f64(), style.paint("1", self.title)));
        line(format!("channel  {}", style.paint(state_colour(self.state), &self.state.to_string())));
        let rates: Vec<usize> = self.members.iter().map(|member| self.rate(&member.name)).collect();
        let most = rates.iter().copied().max().unwrap_or(0).max(1);
        for (member, rate) in self.members.iter().zip(rates) {
            let bar = style.paint(self.colour(member.group), &"█".repeat((rate * BAR_WIDTH).div_ceil(most)));
            let trouble = member.condition.trouble().map(|trouble| style.paint(BAD, &format!("  {trouble}")));
            line(format!("{:<8} {bar} {rate}/s{}", member.name, trouble.unwrap_or_default()));
        }
        let failing = format!("{}/s ({} in all)", self.failing(), self.failed());
        line(format!("failed   {}", if self.failing() > 0 { style.paint(BAD, &failing) } else { failing }));
        line(format!("timeline {}", self.timeline(style)));
        text
    }

    pub(super) fn line(&self) -> String {
        let mut text = format!("{:5.1} s  {}", self.now.as_secs_f64(), self.state);
        for group in self.groups() {
            let members = || self.members.iter().filter(move |member| member.group == group);
            let rate: usize = members().map(|member| self.rate(&member.name)).sum();
            let trouble = members().map(|member| member.condition.trouble()).min().flatten();
            let trouble = trouble.map(|trouble| format!(" ({trouble})")).unwrap_or_default();
            // Writing to a string does not fail.
            let _ = write!(text, "  {group} {rate}/s{trouble}");
        }
        format!("{text}  failed {}/s", self.failing())
    }

    fn timeline(&self, style: Style) -> String {
        let cells = timeline(self.members, self.samples, self.plan.max(self.now));
        let paint = |cell: Cell| match (style, cell) {
            (Style::Colours, Cell::Answered(group)) => style.paint(self.colour(group), "█"),
            (Style::Colours, Cell::Failed) => style.paint(BAD, "!"),
            _ => cell.letter().to_string(),
        };
        cells.into_iter().map(paint).collect::<String>().trim_end().to_owned()
    }

    /// RPCs per second.
    fn rate(&self, backend: &str) -> usize {
        self.recent().iter().filter(|s| s.outcome == Outcome::Answered(backend.into())).count()
    }

    fn failing(&self) -> usize {
        self.recent().iter().filter(|sample| sample.is_failure()).count()
    }

    fn failed(&self) -> usize {
        self.samples.iter().filter(|sample| sample.is_failure()).count()
    }

    fn recent(&self) -> &[Sample] {
        between(self.samples, self.now.saturating_sub(WINDOW), self.now)
    }

    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = self.members.iter().map(|member| member.group).collect();
        groups.dedup();
        groups
    }

    fn colour(&self, group: Group) -> &'static str {
        let index = self.groups().iter().position(|other| *other == group).unwrap_or(0);
        COLOURS.iter().cycle().nth(index).unwrap_or(&GOOD)
    }
}

fn state_colour(state: ChannelState) -> &'static str {
    match state {
        ChannelState::Ready => GOOD,
        ChannelState::TransientFailure => BAD,
        _ => WAITING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::mesh::Condition;
    use crate::demo::testing::{members, samples};

    /// Two seconds of a demo of six: A answers, then C, A dies, one RPC fails.
    fn look<R>(at: impl FnOnce(&Frame<'_>) -> R) -> R {
        let mut members = members();
        members
            .iter_mut()
            .filter(|member| member.group.name == "a")
            .for_each(|member| member.condition = Condition::Down);
        let samples =
            samples(100, &[(0, 1200, "a-1"), (1200, 1300, "a-2"), (1300, 1400, "!"), (1400, 2000, "c-1")]);
        at(&Frame {
            title: "phase",
            state: ChannelState::Ready,
            members: &members,
            samples: &samples,
            now: Duration::from_secs(2),
            plan: Duration::from_secs(6),
        })
    }

    #[test]
    fn lines_have_the_rates_of_the_last_second_by_group() {
        let line = look(|frame| frame.line());
        assert_eq!(line, "  2.0 s  READY  a 3/s (down)  b 0/s  c 6/s  failed 1/s");
    }

    #[test]
    fn the_longest_bar_is_the_busiest_backend() {
        let picture = look(|frame| frame.picture(Style::Plain));
        let line = |name: &str| picture.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        let bar = |name: &str| line(name).chars().filter(|c| *c == '█').count();
        assert_eq!([bar("a-1"), bar("a-2"), bar("b-1"), bar("c-1")], [14, 7, 0, BAR_WIDTH]);
        assert!(line("a-1").ends_with("2/s  down") && line("c-1").ends_with(" 6/s"), "{picture}");
        assert_eq!(line("failed"), "failed   1/s (1 in all)");
        assert!(!picture.contains('\x1b'));
    }

    #[test]
    fn the_timeline_fills_up_to_the_plan() {
        let picture = look(|frame| frame.picture(Style::Plain));
        let line = picture.lines().last().unwrap();
        assert_eq!(line, format!("timeline {}!{}", "a".repeat(13), "c".repeat(6)));
    }

    #[test]
    fn groups_have_colours_of_their_own() {
        let picture = look(|frame| frame.picture(Style::Colours));
        assert!(picture.contains("\x1b[32m█") && picture.contains("\x1b[35m█"), "{picture}");
    }
}
