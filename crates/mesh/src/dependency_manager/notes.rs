//! Resolution notes: what RPC errors say of trouble on the way to endpoints.

use std::sync::Arc;

use proxyless_xds::resource::{ClusterLoadAssignment, Locality};

/// Joins what there is to say.
pub(super) fn join<'a>(notes: impl IntoIterator<Item = &'a Arc<str>>) -> Option<Arc<str>> {
    let mut notes = notes.into_iter();
    let first = notes.next()?;
    let mut text = String::new();
    for note in notes {
        text.push_str("; ");
        text.push_str(note);
    }
    Some(if text.is_empty() { Arc::clone(first) } else { format!("{first}{text}").into() })
}

/// What is odd about an assignment that is valid.
pub(super) fn about_assignment(name: &str, assignment: &ClusterLoadAssignment) -> Option<Arc<str>> {
    let localities = || assignment.priorities.iter().flatten();
    if localities().next().is_none() {
        return Some(format!("ClusterLoadAssignment {name}: it has no localities").into());
    }
    let empty: Vec<String> =
        localities().filter(|l| l.endpoints.is_empty()).map(|l| describe(&l.locality)).collect();
    let empty = (!empty.is_empty()).then(|| empty.join(", "))?;
    Some(format!("ClusterLoadAssignment {name}: no endpoints in {empty}").into())
}

fn describe(Locality { region, zone, sub_zone }: &Locality) -> String {
    format!("{{region={region:?}, zone={zone:?}, sub_zone={sub_zone:?}}}")
}
