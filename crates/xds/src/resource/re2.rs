//! RE2 syntax that the regex crate lacks.

use std::borrow::Cow;

/// Rewrites quoted text (`\Q...\E`) as escaped literals, and octal escapes as hexadecimal ones. Everything else is
/// unchanged.
///
/// As in RE2, a quotation without `\E` extends to the end, and there are none inside character classes.
pub(crate) fn rewrite(pattern: &str) -> Cow<'_, str> {
    let is_lacking = |pair: &[u8]| matches!(pair, [b'\\', b'Q' | b'0'..=b'7']);
    if !pattern.as_bytes().windows(2).any(is_lacking) {
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
            length
        } else if first == '\\' {
            push_escape(rest, &mut out)
        } else if first == '[' {
            let length = class_length(rest);
            push_class(&rest[..length], &mut out);
            length
        } else {
            out.push(first);
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

/// Writes the escape at the start of the text, and returns its length.
fn push_escape(text: &str, out: &mut String) -> usize {
    if let Some((code, length)) = octal(text) {
        out.push_str(&format!(r"\x{{{code:X}}}"));
        return length;
    }
    // The next character is escaped: `\\Q` is a backslash and a Q.
    let length = 1 + text[1..].chars().next().map_or(0, char::len_utf8);
    out.push_str(&text[..length]);
    length
}

/// Writes a character class.
fn push_class(mut class: &str, out: &mut String) {
    while let Some(escape) = class.find('\\') {
        out.push_str(&class[..escape]);
        class = &class[escape..];
        class = &class[push_escape(class, out)..];
    }
    out.push_str(class);
}

/// The code of the octal escape at the start of the text, and its length: up to three digits. One digit other than 0 is a
/// backreference, which RE2 rejects, too.
fn octal(text: &str) -> Option<(u32, usize)> {
    let digits = text.strip_prefix('\\')?;
    let count = digits.bytes().take(3).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
    let digits = &digits[..count];
    if count == 1 && digits != "0" {
        return None;
    }
    Some((u32::from_str_radix(digits, 8).ok()?, 1 + count))
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
    fn octal_escapes_are_hexadecimal() {
        for (pattern, expected) in [
            (r"\0", r"\x{0}"),
            (r"\08", r"\x{0}8"),
            (r"\12", r"\x{A}"),
            (r"a\101\1012", r"a\x{41}\x{41}2"),
            (r"\777", r"\x{1FF}"),
            (r"[\101-\132\]]\0", r"[\x{41}-\x{5A}\]]\x{0}"),
            (r"\Q\101\E\60", r"\\101\x{30}"),
            (r"\\101", r"\\101"),
            // Backreferences.
            (r"(a)\1", r"(a)\1"),
            (r"\18\60", r"\18\x{30}"),
            (r"[\1]\60", r"[\1]\x{30}"),
            (r"\0\é\", r"\x{0}\é\"),
        ] {
            assert_eq!(rewrite(pattern), expected, "{pattern}");
        }
    }

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
            assert_eq!(rewrite(pattern), expected, "{pattern}");
        }
    }
}
