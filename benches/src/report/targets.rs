//! The performance targets of proxyless, and whether they are met.

use std::fmt::Write;

use super::table::number;
use crate::digest::{Digest, Spread};
use crate::field::Contestant::{
    self, BareHyper, CCore, Envoy, GrpcGo, Proxyless, TonicXds, WithMetrics, WithOtel,
};
use crate::measures::SCALING;

struct Target {
    what: &'static str,
    bound: Bound,
    value: Value,
}

enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

enum Value {
    /// A measure of proxyless itself.
    Own(&'static str),
    /// A measure as the ratio of two contestants.
    Ratio(&'static str, Contestant, Contestant),
}

use Bound::{AtLeast, AtMost};
use Value::{Own, Ratio};

const TARGETS: &[Target] = &[
    target(
        "CPU per RPC / bare hyper, 128 concurrent",
        AtMost(1.05),
        Ratio("calls/128/cpu", Proxyless, BareHyper),
    ),
    target(
        "CPU per RPC over TLS / bare hyper, 128 concurrent",
        AtMost(1.0),
        Ratio("tls/128/cpu", Proxyless, BareHyper),
    ),
    target(
        "CPU per RPC with /metrics / without, 1 at a time",
        AtMost(1.03),
        Ratio("telemetry/001/cpu", WithMetrics, Proxyless),
    ),
    target(
        "CPU per RPC with /metrics / without, 128 concurrent",
        AtMost(1.03),
        Ratio("telemetry/128/cpu", WithMetrics, Proxyless),
    ),
    target(
        "CPU per RPC with OpenTelemetry metrics / without, 1 at a time",
        AtMost(1.03),
        Ratio("telemetry/001/cpu", WithOtel, Proxyless),
    ),
    target(
        "CPU per RPC with OpenTelemetry metrics / without, 128 concurrent",
        AtMost(1.03),
        Ratio("telemetry/128/cpu", WithOtel, Proxyless),
    ),
    target(
        "requests/s / tonic-xds, 128 concurrent",
        AtLeast(1.5),
        Ratio("calls/128/rps", Proxyless, TonicXds),
    ),
    target(
        "requests/s / Envoy sidecar, 128 concurrent",
        AtLeast(4.0),
        Ratio("calls/128/rps", Proxyless, Envoy),
    ),
    target(
        "pick through the full tree, ns",
        AtMost(150.0),
        Own("inner/pick/aggregate+outlier_detection/pick/1_thread"),
    ),
    target(
        "allocations per pick",
        AtMost(0.0),
        Own("inner/pick/aggregate+outlier_detection/pick/allocations"),
    ),
    target(
        "picks of 2 threads / 1 thread",
        AtLeast(1.8),
        Own("inner/pick/aggregate+outlier_detection/pick/scaling"),
    ),
    target(
        "10k endpoints, one changed / envoy-types decode",
        AtMost(1.5),
        Own("inner/update/10k/one/idle/ratio_to_decode"),
    ),
    target(
        "10k endpoints, one changed: C-core / proxyless",
        AtLeast(15.0),
        Ratio("update/idle/010000/one", CCore, Proxyless),
    ),
    target("pickers published for the same bytes", AtMost(0.0), Own("inner/update/10k/same/idle/publishes")),
    target("CPU per endpoint, 100k / 10k (linear = 1)", AtMost(1.5), Own(SCALING)),
    target(
        "bytes per unconnected endpoint, live heap",
        AtMost(1024.0),
        Own("inner/memory/endpoint/idle/total"),
    ),
    target("first RPC / C-core", AtMost(1.0), Ratio("startup/plain/channel", Proxyless, CCore)),
    target("first RPC / grpc-go", AtMost(1.0), Ratio("startup/plain/channel", Proxyless, GrpcGo)),
    target("first RPC with a dead last leaf, ms", AtMost(100.0), Own("startup/slow leaf/channel")),
    target("refused primary: next priority serves, ms", AtMost(50.0), Own("failover/refused/time")),
    target("reset primary: next priority serves, ms", AtMost(50.0), Own("failover/reset/time")),
    target("graceful GOAWAY: failed RPCs", AtMost(0.0), Own("failover/goaway/failed")),
];

const fn target(what: &'static str, bound: Bound, value: Value) -> Target {
    Target { what, bound, value }
}

/// A line for each target.
pub(crate) fn verdicts(digest: &Digest) -> String {
    let mut out = String::from("| target | bound | measured (spread) | |\n|---|---|---|---|\n");
    for Target { what, bound, value } in TARGETS {
        let found = value.of(digest);
        let (measured, verdict) = match found {
            Some(found) => {
                let verdict = match found.median {
                    Some(median) if bound.holds(median) => "reached",
                    Some(_) => "MISSED",
                    None => "not judged",
                };
                (found.text(number, ""), verdict)
            }
            None => ("–".into(), "not measured"),
        };
        let bound = match bound {
            AtMost(most) => format!("<= {most}"),
            AtLeast(least) => format!(">= {least}"),
        };
        let _ = writeln!(out, "| {what} | {bound} | {measured} | {verdict} |");
    }
    out
}

impl Value {
    fn of(&self, digest: &Digest) -> Option<Spread> {
        match *self {
            Own(measure) => digest.value(measure, Proxyless),
            Ratio(measure, of, to) => digest.ratio(measure, of, to),
        }
    }
}

impl Bound {
    fn holds(&self, value: f64) -> bool {
        match *self {
            AtMost(most) => value <= most,
            AtLeast(least) => value >= least,
        }
    }
}
