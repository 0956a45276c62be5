//! Untrusted text on our terminal: escaped, and wrapped into lines.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes the characters that a terminal would act upon: the name of a resource must not move the reader's cursor or
/// change the direction of the text.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_active(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// The same for JSON, where all such characters are inside strings; line breaks are part of its layout.
pub(crate) fn safe_json(json: &str) -> Cow<'_, str> {
    let active = |c: char| is_active(c) && c != '\n';
    if !json.contains(active) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if active(c) {
            // All of them are in the basic plane. Writing to a string does not fail.
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

fn is_active(c: char) -> bool {
    // Control characters, separators that some treat as line breaks, and characters that change the direction of text.
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Wraps a text into lines: the first of at most this width, the others of that. At spaces, if there are any.
pub(crate) fn wrap(text: &str, first: usize, others: usize) -> Vec<String> {
    let words = text.trim_start_matches(' ');
    let mut lines = Vec::new();
    let mut line = " ".repeat(text.len() - words.len());
    let mut used = line.len();
    let mut has_word = false;
    for word in words.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let mut room = if lines.is_empty() { first } else { others }.max(1);
        if has_word && used + 1 + word.len() <= room {
            line.push(' ');
            used += 1;
        } else if has_word {
            lines.push(std::mem::take(&mut line));
            (used, room) = (0, others.max(1));
        }
        // A word that fits on no line is split.
        while used + word.len() > room {
            let rest = word.split_off(room.saturating_sub(used));
            line.extend(&word);
            lines.push(std::mem::take(&mut line));
            (word, used, room) = (rest, 0, others.max(1));
        }
        used += word.len();
        line.extend(&word);
        has_word = true;
    }
    lines.push(line);
    lines
}

/// The number of columns of the terminal, if standard output is one.
pub(crate) fn terminal_width() -> Option<usize> {
    #[cfg(unix)]
    let width = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    #[cfg(not(unix))]
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    width.filter(|width| *width > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_escaped() {
        assert_eq!(safe("\u{1b}]0;x\u{7}\u{1b}[2J"), "\\u{1b}]0;x\\u{7}\\u{1b}[2J");
        assert_eq!(safe("a\r\nb\u{9b}c\u{202e}d"), "a\\r\\nb\\u{9b}c\\u{202e}d");
        assert!(matches!(safe("größe → 漢"), Cow::Borrowed("größe → 漢")));
    }

    #[test]
    fn json_stays_json() {
        let text = serde_json::to_string_pretty(&serde_json::json!({"a": "\u{1b}\u{9b}\u{7f}b"})).unwrap();
        let escaped = safe_json(&text);
        assert!(!escaped.chars().any(|c| is_active(c) && c != '\n'), "{escaped}");
        let there: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(there["a"], "\u{1b}\u{9b}\u{7f}b");
    }

    #[test]
    fn lines_are_broken_at_spaces_and_only_long_words_are_cut() {
        assert_eq!(wrap("one two three", 20, 10), ["one two three"]);
        assert_eq!(wrap("one two three", 8, 6), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 3, 4), ["abc", "defg", "h ij"]);
        assert_eq!(wrap("  indented", 40, 40), ["  indented"]);
        assert_eq!(wrap("x yyyy", 0, 0), ["x", "y", "y", "y", "y"]);
        assert_eq!(wrap("", 5, 5), [""]);
    }
}
