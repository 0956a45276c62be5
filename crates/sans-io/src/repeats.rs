//! Log lines that repeat: counted instead of repeated.

/// Counts the repetitions of a log line. A line is due when its text is new, and after 10, 100, 1,000, ... repetitions.
///
/// ```
/// let mut repeats = proxyless_sans_io::Repeats::default();
/// assert_eq!(repeats.note("connection refused"), Some(0));
/// assert!((1..10).all(|_| repeats.note("connection refused").is_none()));
/// assert_eq!(repeats.note("connection refused"), Some(10));
/// assert_eq!(repeats.note("timed out"), Some(0));
/// ```
#[derive(Debug, Default)]
pub struct Repeats {
    text: Option<Box<str>>,
    count: u64,
    next: u64,
}

impl Repeats {
    /// The line occurs. Returns the number of its repetitions so far if it is due.
    pub fn note(&mut self, text: &str) -> Option<u64> {
        if self.text.as_deref() != Some(text) {
            *self = Self { text: Some(text.into()), count: 0, next: 10 };
            return Some(0);
        }
        self.count = self.count.saturating_add(1);
        if self.count < self.next {
            return None;
        }
        self.next = self.next.saturating_mul(10);
        Some(self.count)
    }

    /// The state that the line is about has ended. Returns the number of its repetitions; the next line is new.
    pub fn end(&mut self) -> u64 {
        std::mem::take(self).count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_when_it_is_new_and_then_at_powers_of_ten() {
        let mut repeats = Repeats::default();
        let due: Vec<_> = (0..=2_000).filter_map(|_| repeats.note("x")).collect();
        assert_eq!(due, [0, 10, 100, 1_000]);
        assert_eq!(repeats.end(), 2_000);
        assert_eq!(repeats.note("x"), Some(0));
        assert_eq!(repeats.note("y"), Some(0));
        assert_eq!(repeats.note("x"), Some(0));
        assert_eq!(repeats.end(), 0);
    }
}
