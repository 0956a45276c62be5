//! The violations in a response, as text.

use std::fmt::{self, Write as _};

use crate::resource::cut;

/// The maximum length of an error that is sent or reported.
pub(super) const MAX_ERROR_BYTES: usize = 8 * 1024;
/// The number of invalid resources that are listed; the rest is counted.
const NAMED: u64 = 50;

/// The invalid resources of a response with their reasons: the first ones as text, and their total number.
#[derive(Debug, Default)]
pub(super) struct Faults {
    text: String,
    named: u64,
    count: u64,
}

impl Faults {
    /// Adds a fault, formatting it only if it will be shown.
    pub(super) fn push(&mut self, fault: fmt::Arguments<'_>) {
        self.count += 1;
        if self.named < NAMED && self.text.len() < MAX_ERROR_BYTES {
            let separator = if self.named == 0 { "" } else { "; " };
            self.named += 1;
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{separator}{fault}");
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All faults in one line of at most [`MAX_ERROR_BYTES`] bytes.
    pub(super) fn text(&self) -> String {
        let more = match self.count - self.named {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        cut(self.text.clone(), MAX_ERROR_BYTES - more.len()) + &more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_faults_are_named_and_all_are_counted() {
        let mut faults = Faults::default();
        assert!(faults.is_empty() && faults.text().is_empty());
        (0..50).for_each(|i| faults.push(format_args!("resource {i}: bad")));
        assert!(faults.text().starts_with("resource 0: bad; resource 1: bad; "), "{}", faults.text());
        assert!(faults.text().ends_with("; resource 49: bad"), "{}", faults.text());
        (50..1_000_000).for_each(|i| faults.push(format_args!("resource {i}: bad")));
        assert_eq!(faults.count(), 1_000_000);
        assert!(faults.text().ends_with("; resource 49: bad; and 999950 more"), "{}", faults.text());
    }

    #[test]
    fn long_faults_are_cut_and_the_count_stays() {
        let mut faults = Faults::default();
        let long = "é".repeat(MAX_ERROR_BYTES / 3);
        (0..10).for_each(|_| faults.push(format_args!("{long}")));
        assert!(faults.text().len() <= MAX_ERROR_BYTES);
        assert!(faults.text().ends_with(" ... (cut); and 8 more"), "{}", faults.text());
    }
}
