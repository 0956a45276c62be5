//! Lists in errors: RPCs carry them in a header, so they stay short whatever the size of the mesh.

use std::fmt::Write;

/// How many entries are written out.
const MOST: usize = 5;
/// How many bytes of an entry are written out, where there are several.
const LONGEST: usize = 500;

/// The first entries, separated like this, and how many more there are.
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

/// The longest prefix of no more than this many bytes.
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
