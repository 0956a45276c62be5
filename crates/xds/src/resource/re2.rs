//! RE2 syntax that the regex crate lacks.

use std::borrow::Cow;

/// Rewrites quoted text (`\Q...\E`) as escaped literals. Everything else is unchanged.
///
/// As in RE2, a quotation without `\E` extends to the end, and there are none inside character classes.
pub(crate) fn unquote(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains(r"\Q") {
        return Cow::Borrowed(pattern);
    }
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let length = if let Some(quoted) = rest.strip_prefix(r"\Q") {
            let (text, length) = match quoted.find(r"\E") {
                Some(end) => (&quoted[..end], r"\Q".len() + end + r"\E".len()),
                None => (quoted, rest.len()),
            };
            out.push_str(&regex::escape(text));
            rest = &rest[length..];
            continue;
        } else if first == '\\' {
            // The next character is escaped: `\\Q` is a backslash and a Q.
            1 + rest[1..].chars().next().map_or(0, char::len_utf8)
        } else if first == '[' {
            class_length(rest)
        } else {
            first.len_utf8()
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

/// The length of the character class at the start of the text.
fn class_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    chars.next_if(|(_, c)| *c == '^');
    // A bracket in first position is part of the class.
    chars.next_if(|(_, c)| *c == ']');
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            // `[:alpha:]`
            '[' if text[at..].starts_with("[:") => {
                let name_end = text[at..].find(":]").map_or(at, |end| at + end + 1);
                while chars.next_if(|(at, _)| *at <= name_end).is_some() {}
            }
            ']' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_literal() {
        for (pattern, expected) in [
            ("a.b", "a.b"),
            (r"\Qa.b\E", r"a\.b"),
            (r"x\Qa.b\Ey.", r"xa\.by."),
            (r"\Qa\E|\Q(b)\E", r"a|\(b\)"),
            // The quotation extends to the end and is closed only once.
            (r"\Qa.b", r"a\.b"),
            (r"\Q\Qa\E", r"\\Qa"),
            (r"\Q\\E", r"\\"),
            (r"\Q\E", ""),
            (r"\Q", ""),
            (r"\Qab\E*", "ab*"),
            (r"\Qé[\E[é]", r"é\[[é]"),
            // An escaped backslash before a Q.
            (r"\\Qa.b", r"\\Qa.b"),
            (r"\\\Qa.b\E", r"\\a\.b"),
            // Not inside character classes.
            (r"[\Q]\Q.\E", r"[\Q]\."),
            (r"[]\Q]\Q.\E", r"[]\Q]\."),
            (r"[^]\Q]\Q.\E", r"[^]\Q]\."),
            (r"[[:alpha:]\Q]\Q.\E", r"[[:alpha:]\Q]\."),
            (r"[\]\Q]\Q.\E", r"[\]\Q]\."),
            (r"[\Q", r"[\Q"),
            (r"\[\Q.\E", r"\[\."),
            (r"\Q.\E\", r"\.\"),
        ] {
            assert_eq!(unquote(pattern), expected, "{pattern}");
        }
    }
}
