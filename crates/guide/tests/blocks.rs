//! Every code block of the guide has a test, by its language.

use std::fs;

use proxyless::Bootstrap;
use proxyless::bootstrap::BootstrapOptions;
use proxyless_guide::PAGES;
use proxyless_guide::blocks::{Block, blocks, repository};
use saphyr_parser::Parser;

fn of(language: &str) -> Vec<Block> {
    let found: Vec<Block> =
        blocks().unwrap().into_iter().filter(|block| block.language == language).collect();
    assert!(!found.is_empty(), "the guide has no {language} block: remove its test");
    found
}

/// The problem of a block that has no test.
fn untested(block: &Block) -> Option<String> {
    let problem = match block.language.as_str() {
        "rust" if !PAGES.contains(&block.page.as_str()) => "add the page to PAGES of crates/guide/src/lib.rs",
        "rust" if block.has("ignore") => "ignored Rust blocks are not tested; use no_run",
        "rust" | "json" | "yaml" | "console" | "go" | "text" => return None,
        "" => "name the language of the block; output of programs is `text`",
        _ => "there is no test for this language: add one, and a row in crates/guide/src/lib.rs",
    };
    Some(format!("{}: {:?}: {problem}", block.place(), block.language))
}

#[test]
fn every_block_has_a_test() {
    let problems: Vec<String> = blocks().unwrap().iter().filter_map(untested).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn unknown_languages_and_untested_pages_are_found() {
    let block = |page: &str, language: &str| Block {
        page: page.to_owned(),
        line: 1,
        language: language.to_owned(),
        tags: Vec::new(),
        text: String::new(),
    };
    assert_eq!(untested(&block("testing.md", "rust")), None);
    for (page, language) in [("new.md", "rust"), ("testing.md", "python"), ("testing.md", "")] {
        assert!(untested(&block(page, language)).is_some(), "{page} {language}");
    }
}

#[test]
fn bootstraps_are_valid() {
    for block in of("json") {
        let mut options = BootstrapOptions::default();
        options.google_default |= block.has("google-default");
        if let Err(error) = Bootstrap::from_json_with(&block.text, &options) {
            panic!("{}: {error}", block.place());
        }
    }
}

/// `proxyless check` reads the mesh files, in `crates/cli/tests/guide.rs`.
#[test]
fn manifests_are_yaml() {
    for block in of("yaml").iter().filter(|block| block.has("kubernetes")) {
        if let Some(error) = Parser::new_from_str(&block.text).find_map(Result::err) {
            panic!("{}: {error}", block.place());
        }
        for field in ["apiVersion:", "kind:", "metadata:"] {
            assert!(block.text.lines().any(|line| line.starts_with(field)), "{}: no {field}", block.place());
        }
    }
}

#[test]
fn the_go_program_is_the_one_that_is_built() {
    let [block] = &of("go")[..] else { panic!("more than one go block") };
    let file = "docs/guide/go-control-plane/main.go";
    let program = fs::read_to_string(repository().join(file)).unwrap();
    assert!(block.text == program, "{} differs from {file}", block.place());
}
