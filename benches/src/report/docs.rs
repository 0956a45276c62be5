//! Keeps the results of this machine, and puts those of all into the documentation.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::machines::machines;
use super::{ahead, chart, tables, verdicts};
use crate::digest::Digest;
use crate::machine;
use crate::service::BoxError;

const BEGIN: &str = "<!-- results: written by the benchmark -->";
const END: &str = "<!-- end of results -->";

/// Keeps the results of this machine in `benches/results`.
pub(crate) fn store(digest: &Digest) -> Result<(), BoxError> {
    Ok(std::fs::write(folder().join(machine::slug()).with_extension("json"), text_of(digest)?)?)
}

/// JSON with a line for each field and each measure, so that differences can be read.
fn text_of(digest: &Digest) -> Result<String, BoxError> {
    let lines = |value: &Value, indent: &str| {
        let fields = value.as_object().into_iter().flatten();
        let fields = fields.map(|(name, value)| format!("{indent}{}: {value}", Value::from(name.as_str())));
        fields.collect::<Vec<_>>().join(",\n")
    };
    let mut value = serde_json::to_value(digest)?;
    let measures = value["measures"].take();
    value["measures"] = json!({});
    let (head, measures) = (lines(&value, "  "), lines(&measures, "    "));
    let all = format!("\"measures\": {{\n{measures}\n  }}");
    Ok(format!("{{\n{}\n}}\n", head.replacen("\"measures\": {}", &all, 1)))
}

/// Draws the picture, and replaces the text between the marks in `docs/performance.md`.
pub(crate) fn render() -> Result<(), BoxError> {
    let digests = stored()?;
    std::fs::write(docs().join("img/performance.svg"), chart(shown(&digests)?))?;
    let page = docs().join("performance.md");
    let text = std::fs::read_to_string(&page)?;
    Ok(std::fs::write(page, rendered(&text, &digests)?)?)
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results")
}

/// The results of all machines, by the names of their files.
fn stored() -> Result<Vec<(String, Digest)>, BoxError> {
    let mut digests = Vec::new();
    for file in std::fs::read_dir(folder())? {
        let path = file?.path();
        let digest = serde_json::from_str(&std::fs::read_to_string(&path)?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let slug = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        digests.push((slug.to_owned(), digest));
    }
    digests.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(digests)
}

/// The results that the tables are of: of the benchmark itself, and with the most measures, since a run may be of some groups;
/// of several such the latest.
fn shown(digests: &[(String, Digest)]) -> Result<&Digest, BoxError> {
    let measured = digests.iter().map(|(_, digest)| digest).filter(|digest| digest.date.is_some());
    let shown = measured.max_by_key(|digest| (digest.measures("").count(), &digest.date));
    shown.ok_or_else(|| "there are no results".into())
}

/// The cells in which a peer is ahead, by machine.
fn ahead_by_machine(digests: &[(String, Digest)]) -> String {
    let mut text = String::new();
    for (slug, digest) in digests {
        let Some(date) = &digest.date else { continue };
        let version = digest.versions.get("proxyless").map_or("unknown", String::as_str);
        let _ = writeln!(text, "On `{slug}` ({date}, proxyless {version}). {}", ahead(digest));
    }
    text
}

fn rendered(page: &str, digests: &[(String, Digest)]) -> Result<String, BoxError> {
    let (head, rest) = page.split_once(BEGIN).ok_or("docs/performance.md has no mark for the results")?;
    let (_, tail) =
        rest.split_once(END).ok_or("docs/performance.md has no mark for the end of the results")?;
    let digest = shown(digests)?;
    let mut notes = String::new();
    for (who, why) in &digest.missing {
        let _ = writeln!(notes, "- {who} is missing: {why}");
    }
    for failure in &digest.failures {
        let _ = writeln!(notes, "- failed: {failure}");
    }
    let versions = digest.versions.iter().map(|(name, version)| format!("{name}: {version}"));
    let versions: Vec<String> = versions.collect();
    let mut of_run = vec![digest.machine.clone()];
    of_run.extend(digest.date.clone());
    of_run.extend(digest.rounds.map(|rounds| format!("{rounds} rounds")));
    Ok(format!(
        "{head}{BEGIN}\n\n### Machines side by side\n\n{}\nThe tables below are of: {}. Versions: {}.\n\n\
         ### The targets\n\n{}\n### Where a peer is ahead\n\n{}{}{notes}\n{END}{tail}",
        machines(digests),
        of_run.join(", "),
        if versions.is_empty() { "not recorded".into() } else { versions.join(", ") },
        verdicts(digest),
        ahead_by_machine(digests),
        tables(digest)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Contestant;
    use crate::results::Results;

    #[test]
    fn stored_results_can_be_read() {
        let mut results = Results::default();
        results.add("m", "us", Contestant::Proxyless, 1.0);
        results.fail("a: b: c [");
        let text = text_of(&Digest::of(&results, 1)).unwrap();
        let digest: Digest = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(digest.value("m", Contestant::Proxyless).is_some());
        assert_eq!(digest.failures, results.failures);
    }

    #[test]
    fn the_page_shows_the_stored_results() {
        let page = std::fs::read_to_string(docs().join("performance.md")).unwrap();
        let rendered = rendered(&page, &stored().unwrap()).unwrap();
        assert!(page == rendered, "docs/performance.md is out of date: cargo contest render");
    }
}
