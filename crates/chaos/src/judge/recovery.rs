//! Recovery times: until backends serve again, and until the client accepts configurations again.
//!
//! After an outage of the control plane the client must accept a configuration within gRPC's backoff after the last
//! fault, three seconds and the grace. For backends the rule on unused endpoints checks the same.

use super::Case;
use crate::clock::{Micros, SECOND};
use crate::faults::{Target, outages};
use crate::report::{Report, Times};
use crate::topology::{BACKENDS, EDS_CLUSTERS};
use crate::wire::Rpc;

pub(super) fn judge(case: &Case<'_>, report: &mut Report) {
    report.backends_back = Times::of(backends(case));
    let mut times = Vec::new();
    let last = case.notes.rpcs.iter().map(|rpc| rpc.end).max().unwrap_or(0);
    for outage in &case.plane_outages {
        let grace = case.grace(outage.start, outage.over.min(last));
        let latest = outage.over.saturating_add(3 * SECOND + grace);
        match case.notes.history.first_ack_after(outage.end) {
            Some(at) if at <= latest => times.push(at - outage.end),
            // It lasted until the end of the run.
            None if latest > last => {}
            Some(at) => {
                times.push(at - outage.end);
                let late = (at - outage.end) as f64 / SECOND as f64;
                let what =
                    format!("the client accepted nothing for {late:.3} s after the control plane recovered");
                report.violations.push(case.violation("control plane not used", outage.end, what));
            }
            None => {
                let what = "the client never accepted anything after the control plane recovered".into();
                report.violations.push(case.violation("control plane not used", outage.end, what));
            }
        }
    }
    report.control_plane_back = Times::of(times);
}

/// The time from each outage of a listed backend to its first response.
fn backends(case: &Case<'_>) -> Vec<Micros> {
    let mut answers: Vec<Vec<&Rpc>> = vec![Vec::new(); BACKENDS];
    for rpc in case.notes.rpcs.iter().filter(|rpc| rpc.code == 0) {
        if let Some(of) = rpc.backend.and_then(|backend| answers.get_mut(usize::from(backend))) {
            of.push(rpc);
        }
    }
    let mut times = Vec::new();
    for (backend, answers) in answers.iter_mut().enumerate() {
        answers.sort_by_key(|rpc| rpc.start);
        for outage in outages(&case.faults, Target::Backend(backend), |_, _| true) {
            let next = answers.partition_point(|rpc| rpc.start < outage.end);
            let Some(first) = answers.get(next) else { continue };
            let is_listed = (0..EDS_CLUSTERS.len()).any(|cluster| {
                let listed = case.notes.history.listed(cluster, outage.end, first.end, 0);
                listed.surely & (1 << backend) != 0
            });
            if is_listed {
                times.push(first.end - outage.end);
            }
        }
    }
    times
}
