//! The command lines and mesh files in the guide (`docs/guide`) are valid.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use proxyless_guide::blocks::{blocks, repository};

/// The commands of the guide's console blocks, with their places.
fn commands() -> Vec<(String, Vec<String>)> {
    let blocks = blocks().unwrap().into_iter().filter(|block| block.language == "console");
    blocks
        .flat_map(|block| {
            let place = block.place();
            let lines: Vec<_> =
                block.text.lines().filter_map(|line| line.strip_prefix("$ ")).map(words).collect();
            assert!(!lines.is_empty(), "{place}: no line begins with `$ `: output alone is `text`");
            lines.into_iter().map(move |line| (place.clone(), line))
        })
        .collect()
}

/// The words of a command line: quotes keep spaces, and a comment ends it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut started) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => (quote, started) = (Some(c), true),
            (None, ' ') => {
                if std::mem::take(&mut started) {
                    words.push(std::mem::take(&mut word));
                }
            }
            (None, '#') if !started => break,
            (_, c) => {
                word.push(c);
                started = true;
            }
        }
    }
    words.extend(started.then_some(word));
    words
}

/// Everything before `--help` is parsed, and nothing is done.
fn parses(arguments: &[String]) -> Result<(), String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_proxyless")).args(arguments).arg("--help").output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// The names of the packages of this repository.
fn packages() -> BTreeSet<String> {
    let folders = std::fs::read_dir(repository().join("crates")).unwrap();
    let manifests = folders.filter_map(|folder| {
        let manifest = std::fs::read_to_string(folder.unwrap().path().join("Cargo.toml")).ok()?;
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = "))?;
        Some(name.trim_matches('"').to_owned())
    });
    manifests.collect()
}

/// Packages and examples of this repository exist.
fn cargo(arguments: &[String]) -> Result<(), String> {
    let after = |flag: &str| {
        let at = arguments.iter().position(|word| word == flag)?;
        arguments.get(at + 1)
    };
    if let Some(package) = after("-p").filter(|package| !packages().contains(*package)) {
        return Err(format!("there is no package {package}"));
    }
    if let Some(example) = after("--example") {
        let file = format!("crates/proxyless/examples/{example}.rs");
        if !Path::new(&repository().join(&file)).exists() {
            return Err(format!("there is no {file}"));
        }
    }
    Ok(())
}

#[test]
fn command_lines_are_valid() {
    let mut problems = Vec::new();
    for (place, line) in commands() {
        let result = match line.split_first() {
            Some((program, arguments)) if program == "proxyless" => parses(arguments),
            Some((program, arguments)) if program == "cargo" => cargo(arguments),
            Some((program, _)) if program == "export" => Ok(()),
            _ => Err("there is no test for this program".to_owned()),
        };
        problems.extend(result.err().map(|error| format!("{place}: {}: {error}", line.join(" "))));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The output of `proxyless check` for a mesh file, if it finds a problem.
fn check(mesh: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mesh.yaml"), mesh).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_proxyless"))
        .args(["check", "--deny-warnings", "mesh.yaml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&text).into_owned()) }
}

#[test]
fn meshes_are_valid() {
    let blocks = blocks().unwrap().into_iter();
    for block in blocks.filter(|block| block.language == "yaml" && !block.has("kubernetes")) {
        if let Err(output) = check(&block.text) {
            panic!("{}: {output}", block.place());
        }
    }
}

#[test]
fn invalid_meshes_are_found() {
    assert!(check("services: { shop: { endpoint: [127.0.0.1:1] } }").is_err());
    assert!(check("services: { shop: { cluster: nowhere } }").is_err());
}

#[test]
fn invalid_command_lines_are_found() {
    assert_eq!(words("a 'b c' --d=\"e\" # f"), ["a", "b c", "--d=e"]);
    assert!(parses(&words("demo --no-such-flag")).is_err());
    assert!(parses(&words("demo --rate many")).is_err());
    assert!(cargo(&words("run -p proxyless --example nothing")).is_err());
    assert!(cargo(&words("run -p nothing")).is_err());
}
