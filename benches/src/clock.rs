//! The clock that all processes share, and the CPU time of another process.

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC).unwrap_or(0)
}

/// The seconds of CPU that a process has used so far, all threads together; 0 if there is no such process.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap_or(0));
    let nanos = clock_getcpuclockid(pid).ok().and_then(nanoseconds).unwrap_or(0);
    nanos as f64 / 1e9
}

fn nanoseconds(clock: ClockId) -> Option<u64> {
    let time = clock_gettime(clock).ok()?;
    let (seconds, nanos) = (u64::try_from(time.tv_sec()).ok()?, u64::try_from(time.tv_nsec()).ok()?);
    Some(seconds * 1_000_000_000 + nanos)
}
