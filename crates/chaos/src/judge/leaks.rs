//! Leaks of the client process.
//!
//! With its channels at rest it may have one connection per channel and backend, and one to the control plane. Without
//! its channels it must be back at its start: no task or connection, and no more threads or descriptors than before.
//! Its memory must not grow over the second half of the run.

use super::Case;
use crate::clock::SECOND;
use crate::report::{Report, Uses};
use crate::topology::Channel;
use crate::wire::Usage;

/// The factor by which memory may grow from the middle quarter of the samples to the last quarter.
const GROWTH_KIB: u64 = 6 * 1024;

pub(super) fn judge(case: &Case<'_>, report: &mut Report) {
    let notes = case.notes;
    let (Some(baseline), Some(idle), Some(end)) = (&notes.baseline, &notes.idle, &notes.end) else {
        report.violations.push(case.violation(
            "the run itself",
            notes.began,
            "the client did not report its usage".into(),
        ));
        return;
    };
    let mut leak = |at, what: String| report.violations.push(case.violation("leak", at, what));
    if idle.in_flight != 0 {
        leak(idle.at, format!("{} RPCs in flight after their callers ended", idle.in_flight));
    }
    for (port, count) in counted(&idle.connections) {
        let allowed = match case.backend_at(port) {
            Some(backend) => {
                let long_lived = Channel::ALL.iter().filter(|channel| !channel.is_short_lived());
                long_lived.filter(|channel| channel.reach() & (1 << backend) != 0).count()
            }
            None => usize::from(port == notes.plane_port),
        };
        if count > allowed {
            leak(idle.at, format!("{count} connections to port {port} at rest, at most {allowed} allowed"));
        }
    }
    for (what, before, after) in [
        ("tasks", baseline.tasks, end.tasks),
        ("threads", baseline.threads, end.threads),
        ("descriptors", baseline.fds, end.fds),
        ("connections", baseline.connections.len(), end.connections.len()),
    ] {
        if after > before {
            leak(end.at, format!("{after} {what} without channels, {before} before the first channel"));
        }
    }
    let rss: Vec<u64> = notes.samples.iter().map(|usage| usage.rss_kib).collect();
    let (middle, last) = (average(quarter(&rss, 1)), average(quarter(&rss, 3)));
    if last > middle + GROWTH_KIB {
        leak(
            end.at,
            format!(
                "memory grows: {} MiB in the second quarter, {} MiB in the last",
                middle / 1024,
                last / 1024
            ),
        );
    }
    report.memory_per_minute_kib = slope(&notes.samples);
    let uses = |name, usage: &Usage| Uses::new(name, usage);
    report.uses = vec![uses("before the first channel", baseline)];
    report.uses.extend(
        notes.samples.iter().max_by_key(|usage| usage.rss_kib).map(|usage| uses("at peak memory", usage)),
    );
    report.uses.push(uses("at rest", idle));
    report.uses.push(uses("without channels", end));
}

fn counted(ports: &[u16]) -> std::collections::BTreeMap<u16, usize> {
    let mut counts = std::collections::BTreeMap::new();
    ports.iter().for_each(|port| *counts.entry(*port).or_default() += 1);
    counts
}

/// One of four parts.
fn quarter(samples: &[u64], number: usize) -> &[u64] {
    let length = samples.len() / 4;
    &samples[number * length..(number + 1) * length]
}

fn average(samples: &[u64]) -> u64 {
    samples.iter().sum::<u64>() / (samples.len() as u64).max(1)
}

/// The growth of memory in KiB per minute over the second half, by least squares.
fn slope(samples: &[Usage]) -> f64 {
    let half = &samples[samples.len() / 2..];
    let count = half.len() as f64;
    let minutes = |usage: &Usage| usage.at as f64 / (60 * SECOND) as f64;
    let mean_x = half.iter().map(minutes).sum::<f64>() / count;
    let mean_y = half.iter().map(|usage| usage.rss_kib as f64).sum::<f64>() / count;
    let over =
        half.iter().map(|usage| (minutes(usage) - mean_x) * (usage.rss_kib as f64 - mean_y)).sum::<f64>();
    let under = half.iter().map(|usage| (minutes(usage) - mean_x).powi(2)).sum::<f64>();
    if under > 0.0 { over / under } else { 0.0 }
}
