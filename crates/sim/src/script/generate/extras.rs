//! Later extensions of the generator. They draw from their own random numbers after the rest, so that the original part
//! of a seed's world does not change.

use std::time::Duration;

use proxyless_sans_io::Rng;
use proxyless_xds::resource::ResourceType;

use super::{CHANNELS, LEAVES};

use crate::clients::endpoints::Behaviour;
use crate::script::config::{Assignment, Cluster, ClusterKind, Faults, Listener, Mesh, Route};
use crate::script::{Action, Change, Loss, Mood, Script, Step};

/// One in this many worlds has no extensions.
const PLAIN: u64 = 4;

/// Adds the extensions to a script.
pub(super) fn add(script: &mut Script) {
    let mut extras =
        Extras { rng: Rng::new(script.seed ^ 0x0e87_4a55), gentle: script.settings.mood == Mood::Gentle };
    if extras.one_in(PLAIN) {
        return;
    }
    // Ejections are detected with a few picks only.
    if extras.one_in(2) && !script.settings.outliers {
        extras.weigh(script);
    }
    if extras.one_in(4) {
        extras.deepen(script);
    }
    if extras.gentle {
        if script.settings.idle_timeout.is_some() && extras.one_in(2) {
            extras.lose_control_plane(script);
        }
        return;
    }
    extras.replace_faults(script);
    // Checks of sweeps and ejections depend on drivers that are on time.
    if extras.one_in(3) && !script.settings.outliers {
        extras.stall(script);
    }
    if extras.one_in(4) {
        extras.flood(script);
    }
    if extras.one_in(5) {
        extras.suspend(script);
    }
    if extras.one_in(3) {
        extras.limit_streams(script);
    }
    if extras.one_in(3) {
        extras.inject_faults(script);
    }
}

struct Extras {
    rng: Rng,
    gentle: bool,
}

impl Extras {
    /// Gives clusters of routes and localities different weights.
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
            Listener::WithoutSessions(listener) | Listener::WithFaults(_, listener) => {
                self.weigh_listener(listener)
            }
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

    /// This many weights with a valid sum: all equal, random, or one that leaves next to nothing to the others.
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

    /// Puts a chain of aggregates above a leaf, close to or above the limit of levels.
    fn deepen(&mut self, script: &mut Script) {
        let levels = 13 + self.rng.below(if self.gentle { 3 } else { 5 }) as usize;
        let name = |level: usize| format!("n{level}");
        for level in 1..=levels {
            let mut children = vec![if level < levels { name(level + 1) } else { self.leaf() }];
            if self.one_in(6) {
                // An aggregate above, or a leaf on the way.
                children.push(if self.one_in(2) { name(1) } else { self.leaf() });
            }
            script.mesh.clusters.insert(name(level), Cluster::new(ClusterKind::Aggregate(children)));
        }
        for routes in script.mesh.routes.values_mut() {
            if let Some((first, _)) = routes.first_mut().and_then(|route| route.clusters.first_mut()) {
                *first = name(1);
            }
        }
        if !self.gentle {
            for _ in 0..self.rng.below(3) {
                let level = 1 + self.rng.below(levels as u64) as usize;
                let child = if self.one_in(2) { self.leaf() } else { name(level + 1) };
                let cluster = Cluster::new(ClusterKind::Aggregate(vec![child]));
                self.insert(script, |_| Action::Set(Change::Cluster(name(level), cluster.clone())));
            }
        }
    }

    /// Channels leave IDLE while the control plane is unreachable.
    fn lose_control_plane(&mut self, script: &mut Script) {
        for _ in 0..1 + self.rng.below(3) {
            self.insert(script, |_| Action::RefuseStreams);
            self.insert(script, |_| Action::CutStream(Loss::Everything));
            self.insert(script, |_| Action::AcceptStreams);
        }
    }

    /// Drivers of channels do not run for a while, mostly longer than the client waits for them.
    fn stall(&mut self, script: &mut Script) {
        for _ in 0..1 + self.rng.below(4) {
            self.insert(script, |extras| {
                let most = if extras.one_in(3) { 5_000 } else { 30_000 };
                let channel = extras.rng.below(CHANNELS as u64) as usize;
                Action::Stall(channel, Duration::from_millis(extras.rng.below(most)))
            });
        }
    }

    /// Responses arrive faster than their ACKs can be sent.
    fn flood(&mut self, script: &mut Script) {
        for _ in 0..1 + self.rng.below(3) {
            self.insert(script, |extras| {
                let most = if extras.one_in(3) { 5_000 } else { 300 };
                Action::WriteDelay(Duration::from_millis(extras.rng.below(most)))
            });
            self.insert(script, |extras| {
                let kinds = ResourceType::ALL;
                let kind = kinds[extras.rng.below(kinds.len() as u64) as usize];
                Action::Flood(kind, 1 + extras.rng.below(100) as u32)
            });
        }
    }

    /// Servers limit streams to few or none for a while.
    fn limit_streams(&mut self, script: &mut Script) {
        let assignments = script.mesh.assignments.values();
        let localities = assignments.flat_map(|assignment| assignment.priorities.iter().flatten());
        let endpoints = localities.flat_map(|locality| &locality.endpoints);
        let mut addresses: Vec<_> =
            endpoints.flat_map(|endpoint| endpoint.addresses.iter().copied()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        for address in addresses {
            for _ in 0..1 + self.rng.below(3) {
                self.insert(script, |extras| {
                    let limit = (!extras.one_in(4)).then(|| extras.rng.below(3) as u32);
                    Action::StreamLimit(address, limit)
                });
            }
        }
        // Some calls come in bursts.
        let mut crowds = Vec::new();
        for step in &script.steps {
            if matches!(step.action, Action::Call(_)) && self.one_in(2) {
                crowds.extend(vec![step.clone(); 2 + self.rng.below(10) as usize]);
            }
        }
        script.steps.extend(crowds);
        script.steps.sort_by_key(|step| step.at);
    }

    /// Listeners have a fault filter, and change it.
    fn inject_faults(&mut self, script: &mut Script) {
        for listener in script.mesh.listeners.values_mut() {
            self.add_faults(listener);
        }
        for step in &mut script.steps {
            if let Action::Set(Change::Listener(_, listener)) = &mut step.action {
                self.add_faults(listener);
            }
        }
    }

    fn add_faults(&mut self, listener: &mut Listener) {
        if let Listener::WithoutSessions(listener) = listener {
            return self.add_faults(listener);
        }
        if self.one_in(4) {
            return;
        }
        let percent = |extras: &mut Self| [0, 10, 50, 100][extras.rng.below(4) as usize];
        let most = if self.one_in(4) { 90_000 } else { 3_000 };
        let faults = Faults {
            delay: Duration::from_millis(1 + self.rng.below(most)),
            delayed: percent(self),
            aborted: percent(self),
            max_active: self.one_in(2).then(|| self.rng.below(4) as u32),
        };
        let inner = std::mem::replace(listener, Listener::Socket);
        *listener = Listener::WithFaults(faults, Box::new(inner));
    }

    /// The process is suspended for minutes or hours; later steps are postponed accordingly.
    fn suspend(&mut self, script: &mut Script) {
        let most = if self.one_in(2) { 300 } else { 20_000 };
        let span = Duration::from_secs(1 + self.rng.below(most));
        let place = self.rng.below(script.steps.len().max(1) as u64) as usize;
        let Some(at) = script.steps.get(place).map(|step| step.at) else { return };
        for step in script.steps.iter_mut().filter(|step| step.at > at) {
            step.at = step.at + span;
        }
        script.steps.push(Step { at, action: Action::Suspend(span) });
        script.steps.sort_by_key(|step| step.at);
    }

    /// Adds an action at the time of another step.
    fn insert(&mut self, script: &mut Script, action: impl Fn(&mut Self) -> Action) {
        let place = self.rng.below(script.steps.len().max(1) as u64) as usize;
        let Some(at) = script.steps.get(place).map(|step| step.at) else { return };
        let action = action(self);
        script.steps.insert(place, Step { at, action });
    }

    fn leaf(&mut self) -> String {
        LEAVES[self.rng.below(LEAVES.len() as u64) as usize].into()
    }

    /// Some backends that refuse connections fail in a different way instead.
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
