//! The selection of a route with its reasons, for inspection. Matching is that of [`RouteTable::select`].

use http::HeaderMap;
use proxyless_sans_io::Rng;

use super::{CompiledRoute, Mismatch, RouteError, RouteTable, Selection};
use crate::words::Words;

/// The verdict about a route that was considered for an RPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteVerdict {
    /// Whether the route matched, and thus ended the search.
    pub matched: bool,
    /// The reason, as a clause.
    pub why: String,
}

impl RouteTable {
    /// Finds the route of an RPC as [`Self::select`] does, with a verdict about each route up to the one that matched.
    pub fn explain(
        &self,
        path: &str,
        headers: &HeaderMap,
        rng: &mut Rng,
    ) -> (Vec<RouteVerdict>, Result<Selection<'_>, RouteError>) {
        let mut verdicts = Vec::new();
        let selected = self.find(path, headers, rng, |_, mismatch| {
            verdicts.push(RouteVerdict { matched: false, why: mismatch.why(path, headers) });
        });
        if !matches!(selected, Err(RouteError::NoMatch { .. }))
            && let Some(route) = self.routes.get(verdicts.len())
        {
            verdicts.push(RouteVerdict { matched: true, why: route.why_matched() });
        }
        (verdicts, selected)
    }
}

impl Mismatch<'_> {
    fn why(self, path: &str, headers: &HeaderMap) -> String {
        match self {
            Self::Path => format!("the path is {path}"),
            Self::Header(header) => match header.value(headers) {
                Some(value) => format!("{} is {value:?}", header.matcher().name),
                None => format!("the request has no header {} that routes can see", header.matcher().name),
            },
            Self::Fraction(share) => format!("it takes {} of RPCs, and not this one", percent(share)),
        }
    }
}

impl CompiledRoute {
    fn why_matched(&self) -> String {
        let mut why = "the path matches".to_owned();
        for header in &self.headers {
            why.push_str(&format!(", {}", Words(header.matcher())));
        }
        if let Some(share) = self.fraction {
            why.push_str(&format!("; it takes {} of RPCs, and this one", percent(share)));
        }
        why
    }
}

/// A fraction in millionths as text.
fn percent(share: u32) -> String {
    format!("{} %", f64::from(share) / 10_000.0)
}
