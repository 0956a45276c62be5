//! What came to the worlds later: drawn after the rest and with a generator of its own, so that a seed's world without
//! it stays as it was.

use proxyless_sans_io::Rng;

use crate::config::{Assignment, Listener, Mesh, Route};
use crate::endpoints::Behaviour;
use crate::script::{Action, Change, Mood, Script};

/// One in so many worlds stays as it was.
const PLAIN: u64 = 4;

/// Adds to a script.
pub(super) fn add(script: &mut Script) {
    let mut extras =
        Extras { rng: Rng::new(script.seed ^ 0x0e87_4a55), gentle: script.settings.mood == Mood::Gentle };
    if extras.one_in(PLAIN) {
        return;
    }
    // What is ejected is found out by a few picks.
    if extras.one_in(2) && !script.settings.outliers {
        extras.weigh(script);
    }
    if !extras.gentle {
        extras.replace_faults(script);
    }
}

struct Extras {
    rng: Rng,
    gentle: bool,
}

impl Extras {
    /// Gives clusters of routes and localities other weights.
    fn weigh(&mut self, script: &mut Script) {
        let Mesh { listeners, routes, assignments, .. } = &mut script.mesh;
        for listener in listeners.values_mut() {
            self.weigh_listener(listener);
        }
        routes.values_mut().for_each(|routes| self.weigh_routes(routes));
        assignments.values_mut().for_each(|assignment| self.weigh_assignment(assignment));
        for step in &mut script.steps {
            match &mut step.action {
                Action::Set(Change::Listener(_, listener)) => self.weigh_listener(listener),
                Action::Set(Change::Routes(_, routes)) => self.weigh_routes(routes),
                Action::Set(Change::Assignment(_, assignment)) => self.weigh_assignment(assignment),
                _ => {}
            }
        }
    }

    fn weigh_listener(&mut self, listener: &mut Listener) {
        match listener {
            Listener::Inline(routes) => self.weigh_routes(routes),
            Listener::WithoutSessions(listener) => self.weigh_listener(listener),
            Listener::Rds(_) | Listener::Socket => {}
        }
    }

    fn weigh_routes(&mut self, routes: &mut [Route]) {
        for route in routes {
            let weights = self.weights(route.clusters.len());
            for ((_, weight), new) in route.clusters.iter_mut().zip(weights) {
                *weight = new;
            }
        }
    }

    fn weigh_assignment(&mut self, assignment: &mut Assignment) {
        for localities in &mut assignment.priorities {
            let weights = self.weights(localities.len());
            for (locality, new) in localities.iter_mut().zip(weights).filter(|(l, _)| l.weight > 0) {
                locality.weight = new;
            }
        }
    }

    /// So many weights whose sum is a weight: all alike, of any size, or one that leaves next to nothing to the others.
    fn weights(&mut self, count: usize) -> Vec<u32> {
        let mut weights: Vec<u32> = match self.rng.below(4) {
            0 => vec![u32::MAX / count.max(1) as u32; count],
            _ => {
                let most = 10u64.pow(1 + self.rng.below(4) as u32);
                (0..count).map(|_| 1 + self.rng.below(most) as u32).collect()
            }
        };
        if self.one_in(5)
            && let Some((first, others)) = weights.split_first_mut()
        {
            others.iter_mut().for_each(|weight| *weight = 1 + *weight % 5);
            *first = u32::MAX - others.iter().sum::<u32>();
        }
        weights
    }

    /// Some of what is refused fails in another way.
    fn replace_faults(&mut self, script: &mut Script) {
        for step in &mut script.steps {
            match &mut step.action {
                Action::Backend(_, behaviour @ Behaviour::Refuses) if self.one_in(3) => {
                    *behaviour = Behaviour::HangsUp;
                }
                action @ Action::RefuseStreams if self.one_in(2) => *action = Action::NoAdsService,
                _ => {}
            }
        }
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.rng.below(n) == 0
    }
}
