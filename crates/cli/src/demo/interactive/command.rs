//! The commands of keys, buttons and lines of input.

use std::fmt;

/// A change of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Change a backend.
    Backend(Change, String),
    /// Set the weight of a locality.
    Weight(String, u32),
    /// Reverse the order of the clusters.
    Order,
}

/// A change of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Kill,
    Revive,
    Drain,
    Slow,
}

const CHANGES: [(&str, Change); 4] =
    [("kill", Change::Kill), ("revive", Change::Revive), ("drain", Change::Drain), ("slow", Change::Slow)];

impl Command {
    /// Reads a command, as [`fmt::Display`] writes it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["order"] => Ok(Self::Order),
            ["weight", locality, weight] => match weight.parse() {
                Ok(weight @ 1..=100) => Ok(Self::Weight(locality.to_owned(), weight)),
                _ => Err(format!("weight {weight:?} is not a number from 1 to 100")),
            },
            [verb, backend] => match CHANGES.iter().find(|(known, _)| *known == verb) {
                Some((_, change)) => Ok(Self::Backend(*change, backend.to_owned())),
                None => Err(unknown(text)),
            },
            _ => Err(unknown(text)),
        }
    }
}

fn unknown(text: &str) -> String {
    format!("{text:?} is not a command: kill, revive, drain or slow BACKEND, weight LOCALITY N, order, quit")
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(change, backend) => write!(f, "{change} {backend}"),
            Self::Weight(locality, weight) => write!(f, "weight {locality} {weight}"),
            Self::Order => f.write_str("order"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = CHANGES.iter().find(|(_, change)| change == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_are_written() {
        for text in
            ["kill berlin-1", "revive ohio-2", "drain paris-1", "slow paris-2", "weight paris 3", "order"]
        {
            assert_eq!(Command::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Command::parse("weight paris 0").unwrap_err(),
            "weight \"0\" is not a number from 1 to 100"
        );
        for text in ["", "kill", "burn paris-1", "order now please"] {
            assert!(Command::parse(text).unwrap_err().contains("is not a command"), "{text}");
        }
    }
}
