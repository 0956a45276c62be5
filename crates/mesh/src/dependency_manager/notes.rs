//! Resolution notes: problems in resolving endpoints, for the errors of RPCs.

use std::sync::Arc;

use proxyless_xds::resource::{ClusterLoadAssignment, RouteConfiguration};

use crate::listing::listing;

/// The maximum number of domains in an error.
const MAX_DOMAINS: usize = 10;

/// Joins notes; a thousand missing clusters must not fill the errors of RPCs.
pub(crate) fn join<'a>(notes: impl IntoIterator<Item = &'a Arc<str>>) -> Option<Arc<str>> {
    let mut notes = notes.into_iter();
    let first = notes.next()?;
    let Some(second) = notes.next() else { return Some(Arc::clone(first)) };
    let all = [first, second].into_iter().chain(notes);
    Some(listing(all.map(|note| &**note), "; ").into())
}

/// The configured domains: the first ones, and the number of others.
pub(super) fn about_domains(routes: &RouteConfiguration) -> String {
    let domains = || routes.virtual_hosts.iter().flat_map(|host| &host.domains);
    let listed: Vec<&str> = domains().take(MAX_DOMAINS).map(String::as_str).collect();
    match domains().count() {
        0 => "there are none".to_owned(),
        count if count > listed.len() => {
            format!("there are {}, and {} more", listed.join(", "), count - listed.len())
        }
        _ => format!("there are {}", listed.join(", ")),
    }
}

/// Peculiarities of a valid assignment.
pub(super) fn about_assignment(name: &str, assignment: &ClusterLoadAssignment) -> Option<Arc<str>> {
    let localities = || assignment.priorities.iter().flatten();
    if localities().next().is_none() {
        return Some(format!("ClusterLoadAssignment {name}: it has no localities").into());
    }
    let empty: Vec<String> =
        localities().filter(|l| l.endpoints.is_empty()).map(|l| l.locality.to_string()).collect();
    let empty = (!empty.is_empty()).then(|| listing(empty.iter().map(String::as_str), ", "))?;
    Some(format!("ClusterLoadAssignment {name}: no endpoints in {empty}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a74_notes_on_hundreds_of_clusters_stay_short() {
        let notes: Vec<Arc<str>> = (0..400).map(|number| format!("Cluster c{number}: gone").into()).collect();
        let text = join(&notes).unwrap();
        assert!(text.starts_with("Cluster c0: gone; ") && text.ends_with("; and 395 more"), "{text}");
        assert_eq!(join(&notes[..1]).as_ref(), notes.first());
        assert_eq!(join([]), None);
    }
}
