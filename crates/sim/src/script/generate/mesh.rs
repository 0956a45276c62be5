//! Random meshes.

use std::time::Duration;

use proxyless_xds::resource::{EjectionSettings, FailurePercentageEjection, SuccessRateEjection};

use super::{
    AGGREGATES, ASSIGNMENTS, BACKENDS, CHANNELS, GHOST, HOSTS, LEAVES, LISTS, MAX_EJECTION_TIME,
    MAX_IDLE_TIMEOUT, MAX_SWEEP_INTERVAL, Maker,
};
use crate::script::Change;
use crate::script::config::{
    Assignment, Cluster, ClusterKind, Endpoint, Health, Listener, Locality, Mesh, Policy, Route, Session,
    backend,
};

impl Maker {
    pub(super) fn mesh(&mut self) -> Mesh {
        let mut mesh = Mesh::default();
        for name in HOSTS {
            mesh.hosts.insert(name.into(), self.addresses(3));
        }
        let mut changes = Vec::new();
        changes.extend((0..CHANNELS).map(|i| self.listener(i)));
        changes.extend((0..CHANNELS).map(|i| Change::Routes(format!("r{i}"), self.routes())));
        changes.extend(ASSIGNMENTS.map(|name| Change::Assignment(name.into(), self.assignment())));
        changes.extend(LEAVES.map(|name| Change::Cluster(name.into(), self.leaf())));
        changes.extend(AGGREGATES.map(|name| Change::Cluster(name.into(), self.aggregate())));
        if self.settings.aggregate_resources {
            changes.extend(LISTS.map(|name| Change::List(name.into(), self.children())));
        }
        for change in changes {
            // Some resources are created later, or never.
            if self.gentle || matches!(change, Change::Listener(..)) || !self.one_in(12) {
                mesh.apply(change);
            }
        }
        mesh
    }

    pub(super) fn listener(&mut self, i: usize) -> Change {
        let listener = match self.rng.below(20) {
            0 if !self.gentle => Listener::Socket,
            1 if !self.gentle => Listener::Rds(GHOST.into()),
            2..8 => Listener::Inline(self.routes()),
            _ => Listener::Rds(format!("r{}", self.channel())),
        };
        // Most channels without sessions have no session filter; a filter may also be added and removed.
        let without = if self.settings.sessions { self.one_in(5) } else { !self.one_in(3) };
        let listener = if without { Listener::WithoutSessions(Box::new(listener)) } else { listener };
        Change::Listener(format!("l{i}"), listener)
    }

    pub(super) fn routes(&mut self) -> Vec<Route> {
        let count = if self.gentle { 2 } else { 1 + self.rng.below(2) as usize };
        let routes = ["/a/", "/b/"].into_iter().take(count).map(|prefix| {
            // In gentle worlds the last route matches every path.
            let all = if self.gentle { prefix == "/b/" } else { self.one_in(8) };
            let prefix = if all { "" } else { prefix };
            let clusters =
                (0..1 + self.rng.below(3)).map(|_| (self.any_cluster(), 1 + self.rng.below(3) as u32));
            let mut clusters: Vec<_> = clusters.collect();
            clusters.sort();
            clusters.dedup_by(|a, b| a.0 == b.0);
            Route { prefix: prefix.into(), clusters }
        });
        routes.collect()
    }

    pub(super) fn leaf(&mut self) -> Cluster {
        let kind = match self.rng.below(12) {
            0..2 => ClusterKind::Dns(self.host()),
            2 if !self.gentle => ClusterKind::Dns(GHOST.into()),
            3 if !self.gentle => ClusterKind::Eds(GHOST.into()),
            _ => ClusterKind::Eds(self.choose(&ASSIGNMENTS).into()),
        };
        self.cluster(kind)
    }

    pub(super) fn aggregate(&mut self) -> Cluster {
        let kind = match self.rng.below(6) {
            0..2 if self.settings.aggregate_resources => ClusterKind::List(self.choose(&LISTS).into()),
            2 if self.settings.aggregate_resources && !self.gentle && self.one_in(4) => {
                ClusterKind::List(GHOST.into())
            }
            // An aggregate may become a leaf.
            3 => return self.leaf(),
            _ => ClusterKind::Aggregate(self.children()),
        };
        self.cluster(kind)
    }

    fn cluster(&mut self, kind: ClusterKind) -> Cluster {
        let draw = self.rng.below(12);
        // Without a draw of its own, so that the worlds of known seeds stay the same.
        let other = self.rng.clone().below(2) == 0;
        let policy = match draw {
            0 => Policy::RingHash,
            1 => Policy::LocalRings,
            2..=3 => Policy::PickFirst,
            4 => Policy::Nested,
            5 => Policy::LeastRequest,
            6 if other => Policy::WeightedByCalls,
            6 => Policy::WeightedRoundRobin,
            7 if other => Policy::SmallSubset,
            7 => Policy::Subset,
            _ => Policy::RoundRobin,
        };
        let max_requests = (!self.gentle && self.one_in(5)).then(|| 1 + self.rng.below(3) as u32);
        Cluster {
            kind,
            policy,
            max_requests,
            // Without a draw of its own, so that the worlds of known seeds stay the same.
            max_connections: Some(self.rng.clone().below(8) as u32).filter(|limit| (2..5).contains(limit)),
            reports_load: self.settings.load && !self.one_in(4),
            session: self.session(),
            outlier_detection: (self.settings.outliers && !self.one_in(4)).then(|| self.outlier_detection()),
        }
    }

    fn session(&mut self) -> Session {
        if !self.settings.sessions {
            return Session::default();
        }
        let override_host_status = match self.rng.below(6) {
            0..2 => None,
            2..5 => Some(vec![Health::Healthy, Health::Draining]),
            _ => Some(self.choose(&[&[][..], &[Health::Draining], &[Health::Healthy]]).to_vec()),
        };
        let idle_timeout = Duration::from_secs(1 + self.rng.below(MAX_IDLE_TIMEOUT.as_secs()));
        Session { override_host_status, idle_timeout: Some(idle_timeout) }
    }

    fn outlier_detection(&mut self) -> EjectionSettings {
        let percent = |make: &mut Self| 10 * make.rng.below(11) as u32;
        let few = |make: &mut Self| 1 + make.rng.below(8) as u32;
        let success_rate_ejection = self.one_in(2).then(|| SuccessRateEjection {
            stdev_factor: 100 * few(self),
            enforcement_percentage: percent(self).max(1),
            minimum_hosts: self.rng.below(4) as u32,
            request_volume: few(self),
        });
        let failure_percentage_ejection = (!self.one_in(3)).then(|| FailurePercentageEjection {
            threshold: percent(self),
            enforcement_percentage: if self.one_in(2) { 100 } else { percent(self).max(1) },
            minimum_hosts: self.rng.below(4) as u32,
            request_volume: few(self),
        });
        let seconds = |make: &mut Self, most: Duration| make.millis(most.as_millis() as u64 - 500);
        EjectionSettings {
            interval: Duration::from_millis(500) + seconds(self, MAX_SWEEP_INTERVAL),
            base_ejection_time: seconds(self, MAX_EJECTION_TIME / 3),
            max_ejection_time: seconds(self, MAX_EJECTION_TIME),
            max_ejection_percent: percent(self),
            success_rate_ejection,
            failure_percentage_ejection,
        }
    }

    pub(super) fn children(&mut self) -> Vec<String> {
        let count = 1 + self.rng.below(4);
        let name =
            |make: &mut Self| if !make.gentle && make.one_in(12) { GHOST.into() } else { make.any_cluster() };
        let mut names: Vec<String> = (0..count).map(|_| name(self)).collect();
        if self.gentle {
            // Aggregates alone may form a loop.
            names.push(self.choose(&LEAVES).into());
        }
        names
    }

    pub(super) fn assignment(&mut self) -> Assignment {
        let mut free: Vec<u8> = (1..=BACKENDS).collect();
        self.rng.shuffle(&mut free);
        // Kept for the last priority of a gentle world.
        let spare = self.gentle.then(|| free.remove(0));
        let mut zones: Vec<u8> = (0..5).collect();
        self.rng.shuffle(&mut zones);
        let priorities = (0..self.rng.below(4)).map(|_| {
            let localities = (0..1 + self.rng.below(2)).filter_map(|_| {
                let endpoints = (0..self.rng.below(3)).filter_map(|_| self.endpoint(&mut free)).collect();
                let weight = if self.one_in(10) { 0 } else { 1 + self.rng.below(3) as u32 };
                Some(Locality { zone: format!("z{}", zones.pop()?), weight, endpoints })
            });
            localities.collect::<Vec<_>>()
        });
        let mut priorities: Vec<_> = priorities.filter(|localities| !localities.is_empty()).collect();
        if self.gentle {
            let endpoints = free.pop().or(spare).map(Endpoint::new).into_iter().collect();
            priorities.push(vec![Locality { zone: "sure".into(), weight: 1, endpoints }]);
        }
        let rare = if self.settings.load { 8 } else { 15 };
        Assignment { priorities, drop_all: !self.gentle && self.one_in(rare) }
    }

    fn endpoint(&mut self, free: &mut Vec<u8>) -> Option<Endpoint> {
        let health = match self.rng.below(12) {
            0 => Health::Draining,
            1 => Health::Unhealthy,
            _ => Health::Healthy,
        };
        let count = if self.one_in(5) { 2 } else { 1 };
        let addresses: Vec<_> = (0..count).filter_map(|_| free.pop()).map(backend).collect();
        (!addresses.is_empty()).then_some(Endpoint { addresses, health })
    }
}
