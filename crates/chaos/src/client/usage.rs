//! The resources that this process uses: memory, descriptors, threads, tasks, connections.

use std::collections::BTreeSet;
use std::fs;

use tokio::runtime::Handle;

use crate::wire::Usage;

/// The current usage. Numbers that the system does not provide are 0.
pub(super) fn usage() -> Usage {
    let links: Vec<String> = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        // The descriptor of the directory itself is closed by now or points to it.
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .filter(|link| !link.ends_with("/fd"))
        .collect();
    let sockets: BTreeSet<&str> =
        links.iter().filter_map(|link| link.strip_prefix("socket:[")?.strip_suffix(']')).collect();
    Usage {
        at: 0,
        rss_kib: rss_kib().unwrap_or(0),
        fds: links.len(),
        threads: fs::read_dir("/proc/self/task").map_or(0, Iterator::count),
        tasks: Handle::current().metrics().num_alive_tasks(),
        connections: connections(&sockets),
        in_flight: 0,
    }
}

fn rss_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The remote ports of these sockets, by inode.
fn connections(sockets: &BTreeSet<&str>) -> Vec<u16> {
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    let mut ports: Vec<u16> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut columns = line.split_whitespace();
            let remote = columns.nth(2)?;
            let inode = columns.nth(6)?;
            sockets.contains(inode).then(|| u16::from_str_radix(remote.split(':').nth(1)?, 16).ok())?
        })
        .collect();
    ports.sort_unstable();
    ports
}
