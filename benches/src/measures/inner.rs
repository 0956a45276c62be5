//! (b), (c), (d) from inside: the numbers of the binary `inner`, which cannot be measured from outside.

use std::process::Stdio;

use serde::Deserialize;
use tokio::process::Command;

use super::Round;
use crate::field::Contestant;
use crate::service::BoxError;

/// The CPU time per endpoint of an update of 100,000 endpoints, relative to one of 10,000.
pub(crate) const SCALING: &str = "inner/scaling/100k to 10k";

/// A line of `inner --json`.
#[derive(Deserialize)]
struct Line {
    measure: String,
    unit: String,
    value: f64,
}

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    measure(round, &["pick", "update", "memory"]).await
}

/// The cost of a pick of each policy.
pub(super) async fn picks(round: &mut Round<'_>) -> Result<(), BoxError> {
    measure(round, &["policies"]).await
}

async fn measure(round: &mut Round<'_>, commands: &[&str]) -> Result<(), BoxError> {
    let inner = round.tools.inner().await?;
    for what in commands {
        let output = Command::new(&inner)
            .args([what, "--json"])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        if !output.status.success() {
            return Err(format!("inner {what}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let lines = String::from_utf8(output.stdout)?;
        let lines = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Line>, _>>()?;
        let total = |size: &str| {
            let name = format!("update/{size}/one/idle/total");
            lines.iter().find(|line| line.measure == name).map(|line| line.value)
        };
        if let (Some(large), Some(small)) = (total("100k"), total("10k")) {
            round.results.add(SCALING, "x", Contestant::Proxyless, large / small / 10.0);
        }
        for line in lines {
            round.results.add(
                &format!("inner/{}", line.measure),
                &line.unit,
                Contestant::Proxyless,
                line.value,
            );
        }
    }
    Ok(())
}
