//! The key figures of all machines, side by side.

use super::table::{Grid, number, short};
use crate::digest::Digest;
use crate::field::Contestant::{self, BareHyper, CCore, GrpcGo, Proxyless, TonicXds};

/// A line of the table.
struct Figure {
    what: &'static str,
    measure: &'static str,
    /// The contestant that proxyless is compared with.
    beside: Contestant,
    /// Whether the value itself is shown, or only the ratio.
    shown: Shown,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Ratio,
    ValueAndRatio,
}

const FIGURES: [Figure; 22] = [
    ratio("CPU per RPC, 1 at a time", "calls/001/cpu"),
    ratio("CPU per RPC, 16 concurrent", "calls/016/cpu"),
    ratio("CPU per RPC, 128 concurrent", "calls/128/cpu"),
    ratio("p50 latency, 1 at a time", "calls/001/p50"),
    ratio("CPU per RPC of 64 KiB, 16 concurrent", "calls-64k/016/cpu"),
    ratio("CPU per RPC of 64 KiB, 128 concurrent", "calls-64k/128/cpu"),
    ratio("CPU per RPC over TLS, 128 concurrent", "tls/128/cpu"),
    ratio("CPU per message, four streams", "stream/cpu"),
    ratio("messages/s, four streams", "stream/mps"),
    ratio("CPU per message, 1,000 streams", "stream-1000/cpu"),
    ratio("CPU per message, flood from the client", "flood-up/cpu"),
    ratio("CPU per message, flood from the server", "flood-down/cpu"),
    value("MiB/s over a long link, download", "link/down/rate", GrpcGo),
    value("EDS update, one of 10 endpoints", "update/idle/000010/one", TonicXds),
    value("EDS update, one of 1,000 endpoints", "update/idle/001000/one", TonicXds),
    value("EDS update, one of 10,000 endpoints", "update/idle/010000/one", TonicXds),
    value("EDS update, one of 1,000 connected", "update/connected/001000/one", TonicXds),
    value("memory per cluster", "memory/cluster", TonicXds),
    value("memory per channel", "memory/channel", CCore),
    value("memory per endpoint", "memory/endpoint", GrpcGo),
    value("first RPC", "startup/plain/channel", TonicXds),
    value("failover, refused", "failover/refused/time", GrpcGo),
];

const fn ratio(what: &'static str, measure: &'static str) -> Figure {
    Figure { what, measure, beside: BareHyper, shown: Shown::Ratio }
}

const fn value(what: &'static str, measure: &'static str, beside: Contestant) -> Figure {
    Figure { what, measure, beside, shown: Shown::ValueAndRatio }
}

/// A table with a column for each machine.
pub(super) fn machines(digests: &[(String, Digest)]) -> String {
    let row = |figure: &Figure| {
        let cells = digests.iter().map(|(_, digest)| figure.cell(digest)).collect();
        (format!("{} / {}", figure.what, figure.beside), cells)
    };
    let grid = Grid {
        columns: digests.iter().map(|(slug, _)| slug.clone()).collect(),
        rows: FIGURES.iter().map(row).collect(),
    };
    let mut text = String::new();
    grid.write(&mut text);
    for (slug, digest) in digests {
        let date = digest.date.as_deref().unwrap_or("not by the benchmark");
        text.push_str(&format!("- `{slug}` ({date}): {}\n", digest.machine));
        for note in &digest.notes {
            text.push_str(&format!("  - {note}\n"));
        }
    }
    text
}

impl Figure {
    fn cell(&self, digest: &Digest) -> String {
        let ratio = digest.ratio(self.measure, Proxyless, self.beside);
        let ratio = ratio.map(|ratio| ratio.text(short, "x"));
        let value = digest.value(self.measure, Proxyless).filter(|_| self.shown == Shown::ValueAndRatio);
        let value = value.and_then(|value| value.median);
        let value = value.map(|median| format!("{} {}", number(median), digest.unit(self.measure)));
        let parts: Vec<String> = value.into_iter().chain(ratio).collect();
        if parts.is_empty() { "–".into() } else { parts.join(" · ") }
    }
}
