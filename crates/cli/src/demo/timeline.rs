//! The groups that answered RPCs without a session over time, as a row of cells of equal length.

use std::time::Duration;

use super::load::{Sample, between};
use super::mesh::{Group, Member};

/// The number of cells in a row.
pub(super) const WIDTH: u32 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// Mostly answered by this group.
    Answered(Group),
    /// RPCs ended, and all failed.
    Failed,
    /// No RPC ended.
    Empty,
}

impl Cell {
    pub(super) fn letter(self) -> char {
        match self {
            Self::Answered(group) => group.letter(),
            Self::Failed => '!',
            Self::Empty => ' ',
        }
    }
}

/// The time from 0 to `span`.
pub(super) fn timeline(members: &[Member], samples: &[Sample], span: Duration) -> Vec<Cell> {
    let start = |cell: u32| span * cell / WIDTH;
    (0..WIDTH).map(|cell| summarise(members, between(samples, start(cell), start(cell + 1)))).collect()
}

/// The same time with a row per group, which shows when it answered any RPC, and one for failures.
pub(super) fn rows(groups: &[Group], members: &[Member], samples: &[Sample], span: Duration) -> Vec<String> {
    let start = |cell: u32| span * cell / WIDTH;
    let row = |letter: char, is_shown: &dyn Fn(&Sample) -> bool| -> String {
        let in_cell = |cell: u32| between(samples, start(cell), start(cell + 1)).iter().any(is_shown);
        (0..WIDTH).map(|cell| if in_cell(cell) { letter } else { ' ' }).collect()
    };
    let by_group = groups.iter().map(|group| {
        let answered = |sample: &Sample| sample.user.is_none() && sample.group(members) == Some(*group);
        row(group.letter(), &answered)
    });
    by_group.chain([row('!', &Sample::is_failure)]).collect()
}

fn summarise(members: &[Member], samples: &[Sample]) -> Cell {
    let samples: Vec<_> = samples.iter().filter(|sample| sample.user.is_none()).collect();
    let answers = |group| samples.iter().filter(|sample| sample.group(members) == Some(group)).count();
    let groups = members.iter().map(|member| member.group);
    match groups.map(|group| (answers(group), group)).max_by_key(|(count, _)| *count) {
        Some((1.., group)) => Cell::Answered(group),
        _ if samples.is_empty() => Cell::Empty,
        _ => Cell::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::testing::{A, B, members, samples};

    #[test]
    fn a_cell_shows_the_most_frequent_backend() {
        // 100 ms a cell, 10 samples each.
        let samples = samples(
            10,
            &[(0, 70, "a-1"), (70, 100, "b-1"), (100, 150, "!"), (150, 160, "b-1"), (200, 300, "!")],
        );
        let cells = timeline(&members(), &samples, Duration::from_secs(6));
        assert_eq!(cells.len(), 60);
        assert_eq!(cells[..4], [Cell::Answered(A), Cell::Answered(B), Cell::Failed, Cell::Empty]);
        let letters: String = cells[..4].iter().map(|cell| cell.letter()).collect();
        assert_eq!(letters, "ab! ");
    }

    #[test]
    fn groups_have_rows_of_their_own() {
        let samples = samples(10, &[(0, 70, "a-1"), (70, 100, "b-1"), (100, 150, "!"), (150, 160, "b-1")]);
        let rows = rows(&[A, B], &members(), &samples, Duration::from_secs(6));
        assert_eq!(rows.iter().map(|row| &row[..3]).collect::<Vec<_>>(), ["a  ", "bb ", " ! "]);
    }

    #[test]
    fn no_time_is_an_empty_row() {
        let cells = timeline(&members(), &samples(10, &[(0, 50, "a-1")]), Duration::ZERO);
        assert!(cells.iter().all(|cell| *cell == Cell::Empty));
    }
}
