//! Everything that the program prints. A reader may close its end at any time (`| head`): that is not an error, and never a
//! panic, as it would be with `println!`.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, Write as _, stderr, stdout};

/// The exit code of a program that SIGPIPE ends, as shells report it (128 + 13).
pub(crate) const CLOSED: u8 = 141;

/// Whether the text has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printed {
    Yes,
    NobodyReads,
}

impl Printed {
    /// For commands that end with their reader.
    pub(crate) fn or_end(self) -> Result<(), Closed> {
        match self {
            Self::Yes => Ok(()),
            Self::NobodyReads => Err(Closed),
        }
    }
}

/// The reader of standard output is gone. `main` ends the program without a word, with the exit code [`CLOSED`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of the output is gone")
    }
}

impl Error for Closed {}

/// Prints the text on standard output as it is.
pub(crate) fn print(text: &str) -> io::Result<Printed> {
    match stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Printed::NobodyReads),
        result => result.map(|()| Printed::Yes),
    }
}

/// Prints the text on standard error as it is.
pub(crate) fn note(text: &str) {
    // There is no other place to report a closed standard error.
    let _ = stderr().write_all(text.as_bytes());
}
