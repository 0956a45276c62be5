//! Keys of a terminal, or lines of another input, as commands.

use std::io::{BufRead as _, IsTerminal as _, Read as _, stdin};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::command::{Change, Command};
use super::world::World;
use crate::demo::mesh::Member;

pub(super) const HELP: &str = "\
keys: 1-6 select a backend; k kill, r revive, d drain, s slow it down; + - the weight of its locality;
      o swap the order of the clusters; q quit. Lines of a pipe: kill berlin-1, weight paris 3, order, quit";

/// Something that the user entered.
pub(super) enum Input {
    Key(char),
    Line(String),
}

/// The meaning of an input.
pub(super) enum Meaning {
    Command(Result<Command, String>),
    Quit,
    Nothing,
}

/// Reads the input. Dropping it restores the terminal.
pub(super) struct Keys {
    selected: usize,
    count: usize,
    _terminal: Option<RawTerminal>,
}

impl Keys {
    /// Starts reading; the receiver ends with the input.
    pub(super) fn start(count: usize) -> (Self, UnboundedReceiver<Input>) {
        let (sender, receiver) = unbounded_channel();
        let terminal = stdin().is_terminal().then(RawTerminal::enter).flatten();
        let keys = terminal.is_some();
        // A thread of its own: reading blocks, and would keep the runtime from ending.
        std::thread::spawn(move || {
            if keys {
                for byte in stdin().lock().bytes().map_while(Result::ok) {
                    if sender.send(Input::Key(char::from(byte))).is_err() {
                        return;
                    }
                }
            } else {
                for line in stdin().lock().lines().map_while(Result::ok) {
                    if sender.send(Input::Line(line)).is_err() {
                        return;
                    }
                }
            }
        });
        (Self { selected: 0, count, _terminal: terminal }, receiver)
    }

    /// The line above the picture.
    pub(super) fn prompt(&self, members: &[Member]) -> String {
        let name = members.get(self.selected).map_or("nothing", |member| &member.name);
        format!("selected {} {name}; k r d s + - o q", self.selected + 1)
    }

    pub(super) fn read(&mut self, input: Input, world: &World) -> Meaning {
        let key = match input {
            Input::Key(key) => key,
            Input::Line(line) => match line.trim() {
                "" => return Meaning::Nothing,
                "quit" | "q" => return Meaning::Quit,
                line => return Meaning::Command(Command::parse(line)),
            },
        };
        let Some(member) = world.members().get(self.selected) else { return Meaning::Nothing };
        let change = |change| Meaning::Command(Ok(Command::Backend(change, member.name.clone())));
        match key {
            'q' | '\u{3}' | '\u{4}' => Meaning::Quit,
            'k' => change(Change::Kill),
            'r' => change(Change::Revive),
            'd' => change(Change::Drain),
            's' => change(Change::Slow),
            'o' => Meaning::Command(Ok(Command::Order)),
            '+' | '-' => {
                let weight = world.weight(member.group);
                let weight = if key == '+' { (weight + 1).min(100) } else { weight.saturating_sub(1).max(1) };
                Meaning::Command(Ok(Command::Weight(member.group.name.to_owned(), weight)))
            }
            digit => {
                let place = digit.to_digit(10).and_then(|digit| (digit as usize).checked_sub(1));
                self.selected = place.filter(|place| *place < self.count).unwrap_or(self.selected);
                Meaning::Nothing
            }
        }
    }
}

/// A terminal that passes on each key at once, without an echo. Ctrl-C stays an interrupt.
struct RawTerminal {
    #[cfg(unix)]
    before: rustix::termios::Termios,
}

impl RawTerminal {
    #[cfg(unix)]
    fn enter() -> Option<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(stdin()).ok()?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self { before })
    }

    #[cfg(not(unix))]
    fn enter() -> Option<Self> {
        None
    }
}

#[cfg(unix)]
impl Drop for RawTerminal {
    fn drop(&mut self) {
        // There is no remedy for a terminal that is gone.
        let _ = rustix::termios::tcsetattr(stdin(), rustix::termios::OptionalActions::Now, &self.before);
    }
}
