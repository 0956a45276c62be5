//! Suggestions for misspelt names.

/// `; did you mean "name"?` for the closest known name; empty if none is close.
pub(crate) fn did_you_mean<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let limit = (text.chars().count() / 3).clamp(1, 4);
    // Lengths that differ by more need no comparison: there are thousands of message types.
    let known = known.into_iter().filter(|name| name.len().abs_diff(text.len()) <= limit);
    let closest = known.map(|name| (distance(text, name), name)).min();
    match closest {
        Some((0, _)) | None => String::new(),
        Some((distance, name)) if distance <= limit => format!("; did you mean {name:?}?"),
        Some(_) => String::new(),
    }
}

/// The edit distance of two names, without case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    // The distance of the part of `a` read so far to each prefix of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().map(|c| c.to_ascii_lowercase()).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (b, above) in b.iter().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(a != *b)).min(above + 1).min(left + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_suggested_and_others_are_not() {
        let known = ["endpoints", "priorities", "dns"];
        assert_eq!(did_you_mean("endpoint", known), "; did you mean \"endpoints\"?");
        assert_eq!(did_you_mean("prioritys", known), "; did you mean \"priorities\"?");
        assert_eq!(did_you_mean("dsn", known), "");
        assert_eq!(did_you_mean("timeout", known), "");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
