//! Puts the results into the documentation.

use std::path::Path;

use super::{chart, tables, verdicts};
use crate::machine;
use crate::results::Results;
use crate::service::BoxError;

const BEGIN: &str = "<!-- results: written by the benchmark -->";
const END: &str = "<!-- end of results -->";

/// Writes the picture, and replaces the text between the marks in `docs/performance.md`.
pub(crate) fn write_docs(results: &Results) -> Result<(), BoxError> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::write(docs.join("img/performance.svg"), chart(results))?;
    let page = docs.join("performance.md");
    let text = std::fs::read_to_string(&page)?;
    let (head, rest) = text.split_once(BEGIN).ok_or("docs/performance.md has no mark for the results")?;
    let (_, tail) =
        rest.split_once(END).ok_or("docs/performance.md has no mark for the end of the results")?;
    let missing = results.missing.iter().map(|(who, why)| format!("- {who} is missing: {why}\n"));
    let failures = results.failures.iter().map(|failure| format!("- failed: {failure}\n"));
    let notes: String = missing.chain(failures).collect();
    let new = format!(
        "{head}{BEGIN}\n\n{}\n\n### The targets\n\n{}\n{}{notes}\n{END}{tail}",
        machine::describe(),
        verdicts(results),
        tables(results)
    );
    Ok(std::fs::write(page, new)?)
}
