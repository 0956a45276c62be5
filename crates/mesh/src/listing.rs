//! Lists in errors: RPCs carry them in a header, so they are short whatever the size of the mesh.

use std::fmt::Write;

/// The maximum number of entries.
const MOST: usize = 5;
/// The maximum length of an entry, if there are several.
const LONGEST: usize = 500;

/// The first entries, joined by the separator, and the number of others.
#[must_use]
pub fn listing<'a>(entries: impl IntoIterator<Item = &'a str>, separator: &str) -> String {
    let mut text = String::new();
    let mut more = 0usize;
    for (number, entry) in entries.into_iter().enumerate() {
        if number >= MOST {
            more += 1;
            continue;
        }
        if number > 0 {
            text.push_str(separator);
        }
        if entry.len() <= LONGEST {
            text.push_str(entry);
        } else {
            text.push_str(prefix(entry, LONGEST));
            text.push('…');
        }
    }
    if more > 0 {
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}and {more} more");
    }
    text
}

/// The longest prefix of at most this many bytes.
fn prefix(text: &str, most: usize) -> &str {
    (0..=most).rev().find_map(|end| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_and_long_entries_are_cut() {
        assert_eq!(listing([], "; "), "");
        assert_eq!(listing(["a", "b"], "; "), "a; b");
        assert_eq!(listing(["a"; 5], ", "), "a, a, a, a, a");
        assert_eq!(listing(["a"; 400], "; "), "a; a; a; a; a; and 395 more");
        let long = "ä".repeat(LONGEST);
        let text = listing(["x", &long], "; ");
        assert_eq!(text, format!("x; {}…", "ä".repeat(LONGEST / 2)));
    }
}
