//! The output of the running demo: an animated picture on a terminal, lines elsewhere, or nothing.

mod frame;

use std::collections::VecDeque;
use std::error::Error;
use std::io::{IsTerminal, stdout};
use std::time::Duration;

use super::DemoFlags;
pub(super) use frame::Frame;
use frame::Style;

use crate::output::print;
use crate::text::{safe, terminal_width, wrap};

/// The number of sentences below the picture.
const SENTENCES: usize = 6;

/// The time between two lines.
const LINE_EVERY: Duration = Duration::from_millis(500);

/// An error ends the demo: nobody sees it any longer.
type Shown = Result<(), Box<dyn Error>>;

pub(super) enum View {
    Picture {
        style: Style,
        /// The number of lines of the last picture, which the next one overwrites.
        drawn: usize,
        /// The last sentences of the commentary, below the picture.
        said: VecDeque<String>,
    },
    Lines {
        next: Duration,
    },
    Nothing,
}

impl View {
    pub(super) fn new(flags: &DemoFlags) -> Self {
        if flags.quiet {
            Self::Nothing
        } else if flags.plain || !stdout().is_terminal() {
            Self::Lines { next: Duration::ZERO }
        } else {
            let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            let style = if colours { Style::Colours } else { Style::Plain };
            Self::Picture { style, drawn: 0, said: VecDeque::new() }
        }
    }

    /// Shows the title of a phase of the scenario.
    pub(super) fn begin(&mut self, at: Duration, title: &str) -> Shown {
        if let Self::Lines { next } = self {
            *next = at + LINE_EVERY;
            line(&format!("{:5.1} s  == {title} ==", at.as_secs_f64()))?;
        }
        Ok(())
    }

    pub(super) fn draw(&mut self, frame: &Frame<'_>) -> Shown {
        match self {
            Self::Picture { style, drawn, said } => {
                let width = terminal_width().unwrap_or(80);
                let said = said.iter().flat_map(|line| wrap(line, width, width)).map(|line| line + "\n");
                let picture = frame.picture(*style) + &said.collect::<String>();
                // Moves to the first line of the last picture, and clears everything below.
                let over = if *drawn > 0 { format!("\x1b[{drawn}F\x1b[J") } else { String::new() };
                *drawn = picture.lines().count();
                Ok(print(&format!("{over}{picture}"))?.or_end()?)
            }
            Self::Lines { next } if frame.now >= *next => {
                *next = frame.now + LINE_EVERY;
                line(&frame.line())
            }
            Self::Lines { .. } | Self::Nothing => Ok(()),
        }
    }

    /// Whether anything is shown before the summary.
    pub(super) fn is_shown(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// Adds a sentence to the commentary.
    pub(super) fn say(&mut self, at: Duration, sentence: &str) -> Shown {
        let text = format!("{:5.1} s  · {}", at.as_secs_f64(), safe(sentence));
        match self {
            Self::Picture { said, .. } => {
                said.push_back(text);
                if said.len() > SENTENCES {
                    said.pop_front();
                }
                Ok(())
            }
            Self::Lines { .. } => line(&text),
            Self::Nothing => Ok(()),
        }
    }

    /// Ends the output before the summary.
    pub(super) fn end(&self) -> Shown {
        if self.is_shown() { line("") } else { Ok(()) }
    }
}

fn line(text: &str) -> Shown {
    Ok(print(&format!("{text}\n"))?.or_end()?)
}
