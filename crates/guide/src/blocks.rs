//! The pages of the guide and their code blocks.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// A page of the guide.
#[derive(Clone, Debug)]
pub struct Page {
    /// The path below `docs/guide/src`, with `/`.
    pub path: String,
    /// The content.
    pub text: String,
}

/// A fenced code block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The page, as in [`Page::path`].
    pub page: String,
    /// The line of the opening fence, counted from 1.
    pub line: usize,
    /// The first word of the info string; empty if there is none.
    pub language: String,
    /// The other words of the info string.
    pub tags: Vec<String>,
    /// The text between the fences.
    pub text: String,
}

impl Block {
    /// Whether the info string has this tag.
    #[must_use]
    pub fn has(&self, tag: &str) -> bool {
        self.tags.iter().any(|known| known == tag)
    }

    /// The place of the block, for messages.
    #[must_use]
    pub fn place(&self) -> String {
        format!("docs/guide/src/{}:{}", self.page, self.line)
    }
}

/// The root of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages, `SUMMARY.md` included, by path.
///
/// # Errors
/// If a file cannot be read.
pub fn pages() -> io::Result<Vec<Page>> {
    let root = repository().join("docs/guide/src");
    let mut pages = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                folders.push(format!("{path}/"));
            } else if path.ends_with(".md") {
                pages.push(Page { text: fs::read_to_string(entry.path())?, path });
            }
        }
    }
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(pages)
}

/// All code blocks of all pages, in order.
///
/// # Errors
/// If a file cannot be read, or a block does not end.
pub fn blocks() -> io::Result<Vec<Block>> {
    let mut all = Vec::new();
    for page in pages()? {
        all.extend(blocks_of(&page).map_err(io::Error::other)?);
    }
    Ok(all)
}

fn blocks_of(page: &Page) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in (1..).zip(page.text.lines()) {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => {
                let mut words = info.split([',', ' ']).filter(|word| !word.is_empty()).map(str::to_owned);
                open = Some(Block {
                    page: page.path.clone(),
                    line: number,
                    language: words.next().unwrap_or_default(),
                    tags: words.collect(),
                    text: String::new(),
                });
            }
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    match open {
        Some(block) => Err(format!("{}: the code block does not end", block.place())),
        None => Ok(blocks),
    }
}

/// A page without the content of its code blocks, so that links and headings in them do not count.
#[must_use]
pub fn prose(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !fence && !inside
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page { path: "p.md".into(), text: text.into() }
    }

    #[test]
    fn blocks_have_languages_tags_and_lines() {
        let blocks =
            blocks_of(&page("# A\n\n```rust,no_run\nlet x;\n```\n- b\n  ```\n  text\n  ```\n")).unwrap();
        let [rust, plain] = &blocks[..] else { panic!("{blocks:?}") };
        assert_eq!((rust.language.as_str(), rust.line, rust.text.as_str()), ("rust", 3, "let x;\n"));
        assert!(rust.has("no_run") && !rust.has("rust"));
        assert_eq!((plain.language.as_str(), plain.place().as_str()), ("", "docs/guide/src/p.md:7"));
    }

    #[test]
    fn a_block_that_does_not_end_is_an_error() {
        let error = blocks_of(&page("```rust\nx\n")).unwrap_err();
        assert_eq!(error, "docs/guide/src/p.md:1: the code block does not end");
    }

    #[test]
    fn prose_has_no_code() {
        assert_eq!(prose("a\n```sh\n# no heading\n```\nb\n"), "a\nb\n");
    }
}
