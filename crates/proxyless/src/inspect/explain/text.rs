//! The explanation as text.

use std::fmt;

use super::{Candidate, Decision, DecisionLevel, Explanation, Outcome, RetryView};

/// The number of candidates of a decision that are shown.
const SHOWN: usize = 20;

impl fmt::Display for Explanation {
    /// A paragraph per decision: `→` marks the chosen candidate. Of many candidates only the first are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {} ({})", self.path, self.target, self.state)?;
        write!(f, "listener {}", self.listener)?;
        match &self.route_config {
            Some(name) => writeln!(f, ", route configuration {name}")?,
            None => writeln!(f)?,
        }
        self.decisions.iter().try_for_each(|decision| write!(f, "{decision}"))?;
        for filter in &self.filters {
            writeln!(f, "filter {filter}")?;
        }
        if let Some(seconds) = self.timeout_seconds {
            writeln!(f, "timeout at most {seconds} s, by the route or the listener")?;
        }
        if let Some(retry) = &self.retry {
            writeln!(f, "{retry}")?;
        }
        if let Some(breaker) = &self.circuit_breaker {
            let super::CircuitBreakerView { cluster, in_flight, max_requests } = breaker;
            writeln!(f, "circuit breaker of {cluster}: {in_flight} of {max_requests} requests in flight")?;
        }
        for super::DropView { category, per_million } in &self.drops {
            writeln!(f, "drops {} % of RPCs, category {category}", *per_million as f64 / 10_000.0)?;
        }
        writeln!(f, "{}", self.outcome)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.of.is_empty() { String::new() } else { format!(" of {}", self.of) };
        writeln!(f, "{}{of}, by {}", self.level, self.by)?;
        // The chosen one is shown in any case.
        let chosen = self.candidates.iter().position(|candidate| candidate.chosen);
        let first = chosen.map_or(0, |chosen| (chosen + 1).saturating_sub(SHOWN));
        let shown: Vec<_> = self.candidates.iter().skip(first).take(SHOWN).collect();
        for candidate in &shown {
            writeln!(f, "  {candidate}")?;
        }
        let hidden = self.candidates.len() - shown.len();
        if hidden > 0 {
            writeln!(f, "    and {hidden} others that are not shown here")?;
        }
        match (self.left_out, self.level) {
            (0, _) => Ok(()),
            (n, DecisionLevel::VirtualHost) => writeln!(f, "    and {n} whose domains do not match"),
            (n, _) => writeln!(f, "    and {n} after it"),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, chosen, state, weight, why } = self;
        f.write_str(if *chosen { "→ " } else { "· " })?;
        f.write_str(name)?;
        if let Some(weight) = weight {
            write!(f, " weight={weight}")?;
        }
        if let Some(state) = state {
            write!(f, " {state}")?;
        }
        write!(f, ": {why}")
    }
}

impl fmt::Display for DecisionLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::VirtualHost => "virtual host",
            Self::Route => "route",
            Self::Cluster => "cluster",
            Self::Session => "session",
            Self::LeafCluster => "leaf cluster",
            Self::Priority => "priority",
            Self::Locality => "locality",
            Self::Endpoint => "endpoint",
        })
    }
}

impl fmt::Display for RetryView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { codes, retries, base_interval_seconds, max_interval_seconds } = self;
        write!(
            f,
            "retries up to {retries} times on {}, after {base_interval_seconds} s to {max_interval_seconds} s",
            codes.join(", ")
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint { address } => write!(f, "goes to {address}"),
            Self::Waits { why } => write!(f, "waits: {why}"),
            Self::Fails { code, message } => write!(f, "fails with {code}: {message}"),
            Self::Dropped { code, message } => write!(f, "is dropped with {code}: {message}"),
        }
    }
}
