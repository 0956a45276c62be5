//! The cells in which a peer is ahead of proxyless by more than the spread: the ratios of all rounds are on its side of 1.

use std::fmt::Write;

use super::table::short;
use crate::digest::{Digest, Spread};
use crate::field::Contestant::{self, H2load, Proxyless, TonicChannel, TonicXds};

/// Cells that cannot be compared: the contestant, the beginnings of the measures, and the reason.
const EXCLUDED: [(Contestant, &[&str], &str); 3] = [
    (H2load, &[""], "it knows neither gRPC nor xDS; it is the floor of a C client"),
    (
        TonicChannel,
        &["calls", "tls", "stream", "flood", "large"],
        "it has one connection to one backend, the others have one to each of four",
    ),
    (
        TonicXds,
        &["update/connected/"],
        "it connects to an endpoint when it is picked, so it has none connected",
    ),
];

/// A list of the cells, and one of those that are excluded.
pub(crate) fn ahead(digest: &Digest) -> String {
    let (mut ahead, mut excluded) = (String::new(), String::new());
    for (name, measure) in digest.measures("") {
        for who in measure.cells.keys().filter(|who| !Contestant::TELEMETRY.contains(who)) {
            let Some(ratio) =
                digest.ratio(name, Proxyless, *who).filter(|ratio| loses(*ratio, &measure.unit))
            else {
                continue;
            };
            let ratio = ratio.text(short, "x");
            let reason = EXCLUDED.iter().find(|(excluded, names, _)| {
                excluded == who && names.iter().any(|begin| name.starts_with(begin))
            });
            let _ = match reason {
                None => writeln!(ahead, "- {name}: proxyless / {who} = {ratio}"),
                Some((_, _, why)) => writeln!(excluded, "- {name}: proxyless / {who} = {ratio}: {why}"),
            };
        }
    }
    if ahead.is_empty() {
        ahead.push_str("There is no cell in which a peer is ahead of proxyless by more than the spread.\n");
    } else {
        ahead.insert_str(0, "Cells in which a peer is ahead of proxyless by more than the spread:\n\n");
    }
    if !excluded.is_empty() {
        let _ = write!(ahead, "\nThe same, but not comparable:\n\n{excluded}");
    }
    ahead
}

/// Whether proxyless is behind in all rounds. Ratios without a range are not judged.
fn loses(ratio: Spread, unit: &str) -> bool {
    let more_is_better = unit.ends_with("/s");
    ratio.range.is_some_and(|(least, most)| if more_is_better { most < 1.0 } else { least > 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Results;

    #[test]
    fn a_peer_is_ahead_if_all_rounds_say_so() {
        let mut results = Results::default();
        for (round, theirs) in [(1, 1.0), (2, 2.0)] {
            results.round = round;
            for (measure, unit, ours) in [("slow", "us", 3.0), ("same", "us", 1.5), ("rate", "MiB/s", 0.5)] {
                results.add(measure, unit, Proxyless, ours);
                results.add(measure, unit, Contestant::GrpcGo, theirs);
                results.add(measure, unit, H2load, theirs);
            }
        }
        let text = ahead(&Digest::of(&results, 2));
        let (peers, excluded) = text.split_once("not comparable").unwrap();
        for measure in ["slow", "rate"] {
            assert!(peers.contains(&format!("- {measure}: proxyless / grpc-go")), "{text}");
            assert!(excluded.contains(&format!("- {measure}: proxyless / h2load")), "{text}");
        }
        assert!(!text.contains("same:"), "{text}");
        assert!(ahead(&Digest::default()).starts_with("There is no cell"));
    }
}
