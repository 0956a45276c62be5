//! Fault injection (gRFC A33): shares at rest, and what may happen to a call with a fault.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_mesh::channel_core::DataPlane;
use proxyless_mesh::route_table::{ActiveFaults, Fault};
use proxyless_sans_io::{Rng, Time};

use super::shares::{PICKS, is_too_unlikely};
use crate::laws::invariants::Violation;
use crate::script::config::Faults;
use crate::script::generate::PATHS;
use crate::world::World;

/// The fault of one call, from the start of its delay to the end of its delay or abort.
#[derive(Debug)]
pub(crate) struct Injection {
    pub(crate) fault: Fault,
    /// The end of the delay.
    pub(crate) until: Time,
    active: Arc<ActiveFaults>,
}

impl Injection {
    /// Begins a fault, unless too many are active.
    pub(crate) fn begin(fault: Fault, active: &Arc<ActiveFaults>, now: Time) -> Option<Self> {
        let until = now + fault.delay.unwrap_or(Duration::ZERO);
        active.begin(&fault).then(|| Self { fault, until, active: Arc::clone(active) })
    }

    /// A33-03: this fault and the other active ones are within its limit.
    pub(crate) fn check_limit(&self, active: usize) -> Result<(), Violation> {
        let limit = self.fault.max_active_faults.map_or(usize::MAX, |limit| limit as usize);
        Violation::unless(active <= limit, "active faults stay within their limit", || {
            format!("{active} of at most {limit}")
        })
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        self.active.end();
    }
}

/// A33-13: at rest, the faults of every channel are those of its listener, and have their shares.
pub(crate) fn check(world: &mut World) -> Result<(), Violation> {
    let mut rng = Rng::new(0xfa17);
    for channel in world.channels() {
        let listener = world.control_plane().mesh.listeners.get(&format!("l{}", channel.index));
        let expected = listener.and_then(|listener| listener.faults()).copied();
        if let Some(plane) = &channel.plane {
            check_channel(plane, expected, &mut rng)?;
        }
    }
    Ok(())
}

fn check_channel(plane: &DataPlane, expected: Option<Faults>, rng: &mut Rng) -> Result<(), Violation> {
    let Ok(routes) = &plane.routes else { return Ok(()) };
    let headers = HeaderMap::new();
    for path in PATHS {
        let Ok(selection) = routes.select(path, &headers, rng) else { continue };
        let (mut delayed, mut aborted) = (0, 0);
        for _ in 0..PICKS {
            for fault in selection.faults.iter().filter_map(|filter| filter.decide(&headers, rng)) {
                let same = expected.is_some_and(|expected| {
                    fault.max_active_faults == expected.max_active
                        && fault.delay.is_none_or(|delay| delay == expected.delay)
                });
                Violation::unless(same, "faults are those of the listener", || {
                    format!("{path}: {fault:?}, not of {expected:?}")
                })?;
                delayed += u32::from(fault.delay.is_some());
                aborted += u32::from(fault.abort.is_some());
            }
        }
        let shares = expected.map_or((0, 0), |expected| (expected.delayed, expected.aborted));
        for (hits, percent) in [(delayed, shares.0), (aborted, shares.1)] {
            let unlikely = is_too_unlikely(hits, PICKS, f64::from(percent) / 100.0);
            Violation::unless(!unlikely, "faults have their shares of the RPCs", || {
                format!("{path}: {delayed} delayed and {aborted} aborted of {PICKS}, by {expected:?}")
            })?;
        }
    }
    Ok(())
}
