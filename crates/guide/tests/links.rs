//! The links of the guide lead somewhere: to pages, headings, pictures, and files of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proxyless_guide::blocks::{pages, prose, repository};

const FILES: &str = "https://github.com/proxyless/proxyless/blob/main/";

/// The destinations of the links and pictures of a text.
fn links(text: &str) -> Vec<&str> {
    text.match_indices("](")
        .filter_map(|(at, _)| text[at + 2..].split_once(')'))
        .map(|(link, _)| link)
        .collect()
}

/// The anchors of the headings of a page, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text);
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

fn anchor(heading: &str) -> String {
    let lower = heading.trim().to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The problem of a link to a file, relative to `folder`.
fn broken(folder: &Path, own: &str, link: &str) -> Option<String> {
    let (path, fragment) =
        link.split_once('#').map_or((link, None), |(path, fragment)| (path, Some(fragment)));
    let text = if path.is_empty() {
        own.to_owned()
    } else {
        let target = folder.join(path);
        if !target.exists() {
            return Some("there is no such file".to_owned());
        }
        fragment?;
        fs::read_to_string(&target).unwrap()
    };
    let anchors = anchors(&text);
    let fragment = fragment.filter(|fragment| !anchors.contains(*fragment))?;
    Some(format!("no heading has the anchor #{fragment}; there are {anchors:?}"))
}

#[test]
fn links_are_not_broken() {
    let (root, source) = (repository(), repository().join("docs/guide/src"));
    let mut problems = Vec::new();
    for page in pages().unwrap() {
        let file = source.join(&page.path);
        let folder = file.parent().unwrap();
        let text = prose(&page.text);
        for link in links(&text) {
            let problem = match link.strip_prefix(FILES) {
                Some(path) => broken(&root, "", path),
                None if link.starts_with("https://") => None,
                // mdBook copies nothing from outside of its sources.
                None if leaves(&page.path, link) => Some(format!("outside of the book: link to {FILES}…")),
                None => broken(folder, &page.text, link),
            };
            problems
                .extend(problem.map(|problem| format!("docs/guide/src/{}: {link}: {problem}", page.path)));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Whether a relative link of a page leads out of the book.
fn leaves(page: &str, link: &str) -> bool {
    let mut depth = page.matches('/').count();
    for part in link.split('/') {
        match part {
            ".." if depth == 0 => return true,
            ".." => depth -= 1,
            _ => {}
        }
    }
    false
}

#[test]
fn the_summary_lists_every_page_once() {
    let pages = pages().unwrap();
    let summary = pages.iter().find(|page| page.path == "SUMMARY.md").unwrap();
    let mut listed = links(&summary.text);
    let mut existing: Vec<&str> =
        pages.iter().map(|page| page.path.as_str()).filter(|path| *path != "SUMMARY.md").collect();
    listed.sort_unstable();
    existing.sort_unstable();
    assert_eq!(listed, existing);
}

#[test]
fn broken_links_are_found() {
    let folder = repository().join("docs/guide/src");
    assert_eq!(broken(&folder, "# A b\n", "#a-b"), None);
    assert!(broken(&folder, "# A b\n", "#c").is_some());
    assert!(broken(&folder, "", "nowhere.md").is_some());
    assert!(broken(&folder, "", "concepts.md#nothing").is_some());
    assert!(leaves("recipes/failover.md", "../../x.md") && !leaves("recipes/failover.md", "../x.md"));
    assert_eq!(
        anchor(" Google's application default credentials"),
        "googles-application-default-credentials"
    );
    assert_eq!(links("a [b](c.md) ![d](e.svg)"), ["c.md", "e.svg"]);
}
