//! Random meshes and random scripts.

use std::net::SocketAddr;
use std::time::Duration;

use proxyless_sans_io::{Rng, Time};
use proxyless_xds::resource::{
    FailurePercentageEjection, OutlierDetection, ResourceType, SuccessRateEjection,
};

use crate::config::{
    Assignment, Cluster, ClusterKind, Endpoint, Health, Key, Listener, Locality, Mesh, Policy, Route,
    Session, backend,
};
use crate::endpoints::Behaviour;
use crate::load_server::Wish;
use crate::script::{
    Action, CallSpec, Change, CutTime, Fault, Loss, Mood, Script, ServerHabits, Settings, Step,
};

/// How many channels a world has at most.
pub(crate) const CHANNELS: usize = 2;
pub(crate) const BACKENDS: u8 = 10;
const ASSIGNMENTS: [&str; 4] = ["e0", "e1", "e2", "e3"];
const LEAVES: [&str; 5] = ["c0", "c1", "c2", "c3", "d0"];
const AGGREGATES: [&str; 3] = ["g0", "g1", "g2"];
const LISTS: [&str; 2] = ["x0", "x1"];
const HOSTS: [&str; 2] = ["h0.test", "h1.test"];
/// The longest time that a cluster of a world with sessions keeps what they do not use any more.
pub(crate) const MAX_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time that an endpoint is ejected for.
pub(crate) const MAX_EJECTION_TIME: Duration = Duration::from_secs(40);
/// The longest time from one sweep for outliers to the next.
pub(crate) const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Names that nothing ever has.
const GHOST: &str = "ghost";
/// The paths of RPCs; the routes know at most two of the prefixes.
pub(crate) const PATHS: [&str; 3] = ["/a/m", "/b/m", "/c/m"];

/// The script of a seed.
pub(crate) fn script(seed: u64) -> Script {
    let mut make = Maker { rng: Rng::new(seed ^ 0x5eed), settings: Settings::default(), gentle: false };
    let settings = Settings { idle_timeout: idle_timeout(seed), ..make.settings() };
    make.settings = settings;
    make.gentle = settings.mood == Mood::Gentle;
    let mesh = make.mesh();
    let steps = make.steps();
    Script { seed, settings, mesh, steps }
}

/// In one of four worlds channels go IDLE.
fn idle_timeout(seed: u64) -> Option<Duration> {
    // A generator of its own: the rest of a seed's world does not depend on it.
    let mut rng = Rng::new(seed ^ 0x1d1e);
    let most = if rng.below(3) == 0 { 20_000 } else { 2_000 };
    (rng.below(4) == 0).then(|| Duration::from_millis(200 + rng.below(most)))
}

struct Maker {
    rng: Rng,
    settings: Settings,
    gentle: bool,
}

impl Maker {
    fn settings(&mut self) -> Settings {
        let mood = if self.one_in(3) { Mood::Gentle } else { Mood::Chaos };
        let mut settings = Settings {
            mood,
            aggregate_resources: self.one_in(2),
            data_errors: self.one_in(3),
            transient_timer: self.one_in(3),
            whole_response_nacks: self.one_in(4),
            load: self.one_in(2),
            sessions: self.one_in(2),
            // Calls that fail for good reasons may have all endpoints ejected.
            outliers: mood == Mood::Chaos && self.one_in(3),
            idle_timeout: None,
            server: ServerHabits {
                trusts_versions: self.one_in(3),
                sends_only_changes: self.one_in(2),
                answers_with_nothing: self.one_in(3),
                wraps_all: self.one_in(4),
                resends_rejected: false,
            },
        };
        // Without a draw of its own, so that the other settings of a seed stay as they were.
        settings.server.resends_rejected = settings.load != settings.sessions;
        settings
    }

    fn mesh(&mut self) -> Mesh {
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
            // Some things come later, or never.
            if self.gentle || matches!(change, Change::Listener(..)) || !self.one_in(12) {
                mesh.apply(change);
            }
        }
        mesh
    }

    fn steps(&mut self) -> Vec<Step> {
        let mut at = Time::ZERO;
        let mut steps = vec![Step { at, action: Action::Start(0) }];
        if self.settings.load {
            steps.push(Step { at, action: Action::Wish(self.wish()) });
        }
        if self.one_in(2) {
            steps.push(Step { at, action: Action::Start(1) });
        }
        let count = 15 + self.rng.below(60);
        for _ in 0..count {
            let gap = match self.rng.below(100) {
                0..60 => self.rng.below(200),
                60..92 => self.rng.below(3_000),
                92..99 => self.rng.below(25_000),
                // Long enough for children to be dropped that were deactivated.
                _ => 1_000_000,
            };
            at = at + Duration::from_millis(gap);
            if self.settings.sessions && !self.gentle && self.one_in(15) {
                at = self.silence(at, &mut steps);
            }
            let action = if self.settings.load && self.one_in(8) {
                self.load_action()
            } else if self.settings.outliers && self.one_in(3) {
                self.outlier_action()
            } else if self.gentle {
                self.gentle_action()
            } else {
                self.action()
            };
            steps.push(Step { at, action });
        }
        steps
    }

    /// RPCs of a session whose hosts have just fallen silent, and time for an attempt to connect to fail.
    fn silence(&mut self, at: Time, steps: &mut Vec<Step>) -> Time {
        let (channel, session) = (self.channel(), self.rng.below(3) as u8);
        steps.push(Step { at, action: Action::SilenceHosts(channel, session) });
        for path in PATHS {
            let spec = CallSpec { channel, path: path.into(), session: Some(session), ..self.call() };
            steps.push(Step { at: at + self.millis(2_000), action: Action::Call(spec) });
        }
        at + self.millis(30_000)
    }

    fn action(&mut self) -> Action {
        match self.rng.below(100) {
            0..3 => Action::Start(self.channel()),
            3..4 => Action::Stop(self.channel()),
            4..28 => Action::Set(self.change()),
            28..31 => Action::Remove(self.removable()),
            31..37 => Action::Fault(self.key(), if self.one_in(2) { Fault::Withheld } else { Fault::Bad }),
            37..41 => Action::Heal(self.key()),
            41..45 => Action::CutStream(if self.one_in(2) { Loss::Everything } else { Loss::Nothing }),
            45..46 => Action::RefuseStreams,
            46..48 => Action::AcceptStreams,
            48..50 => Action::ServerDelay(self.millis(4_000)),
            50..51 => Action::OpenDelay(self.millis(30_000)),
            51..53 => Action::SendAgain(self.resource_type()),
            53..54 => Action::SendGarbage,
            54..66 => Action::Backend(self.address(), self.behaviour()),
            66..69 => Action::GoAway(self.address()),
            69..72 => Action::Reset(self.address()),
            72..73 => Action::BreakDns(self.host()),
            73..75 => Action::HealDns(self.host()),
            75..76 if self.one_in(2) => Action::ExitIdle(self.channel()),
            75..76 => Action::ResetBackoff(self.channel()),
            76..77 => Action::ToggleSessions(self.channel()),
            77..80 => self.burst(),
            _ => Action::Call(self.call()),
        }
    }

    fn gentle_action(&mut self) -> Action {
        match self.rng.below(100) {
            0..30 => Action::Set(self.change()),
            // A channel that left IDLE has nothing to serve with while the control plane is away.
            30..35 if self.settings.idle_timeout.is_some() => Action::SendAgain(self.resource_type()),
            30..32 => Action::CutStream(if self.one_in(2) { Loss::Everything } else { Loss::Nothing }),
            // Nobody can be reached at once, as if the server were restarted.
            32..33 => Action::RefuseStreams,
            33..35 => Action::AcceptStreams,
            35..36 => Action::ToggleSessions(self.channel()),
            36..38 => Action::SendAgain(self.resource_type()),
            38..41 => Action::ServerDelay(self.millis(200)),
            41..45 => Action::GoAway(self.address()),
            45..49 => Action::Reset(self.address()),
            49..50 => Action::Start(1),
            50..53 => self.burst(),
            _ => Action::Call(self.call()),
        }
    }

    fn load_action(&mut self) -> Action {
        match self.rng.below(10) {
            0 => Action::CutLoadStream(CutTime::Now),
            1..4 => Action::CutLoadStream(CutTime::NextReport),
            4 => Action::Wish(self.wish()),
            5..7 => Action::ToggleLoad(self.any_cluster()),
            7 => Action::LoadGarbage,
            8 => Action::RefuseLoadStreams,
            _ => Action::AcceptLoadStreams,
        }
    }

    fn wish(&mut self) -> Wish {
        let names =
            LEAVES.into_iter().chain(AGGREGATES).filter(|_| !self.one_in(6)).map(Into::into).collect();
        Wish { interval: self.millis(12_000), clusters: self.one_in(4).then_some(names) }
    }

    fn outlier_action(&mut self) -> Action {
        match self.one_in(2) {
            true => Action::Failing(self.address(), self.choose(&[0, 30, 60, 100, 100])),
            false => self.burst(),
        }
    }

    fn burst(&mut self) -> Action {
        let count = 1 + self.rng.below(30) as u32;
        Action::Burst(self.call(), count)
    }

    fn call(&mut self) -> CallSpec {
        CallSpec {
            channel: self.channel(),
            path: self.choose(&PATHS).into(),
            takes: if self.one_in(2) { self.millis(300) } else { self.millis(8_000) },
            wait_for_ready: self.one_in(4),
            session: (self.settings.sessions && !self.one_in(3)).then(|| self.rng.below(3) as u8),
            gives_up: self.one_in(10),
        }
    }

    fn change(&mut self) -> Change {
        match self.rng.below(10) {
            0 => {
                let i = self.channel();
                self.listener(i)
            }
            1..4 => Change::Routes(format!("r{}", self.channel()), self.routes()),
            4 => Change::Cluster(self.choose(&LEAVES).into(), self.leaf()),
            5..7 => Change::Cluster(self.choose(&AGGREGATES).into(), self.aggregate()),
            7 if self.settings.aggregate_resources => {
                Change::List(self.choose(&LISTS).into(), self.children())
            }
            7 => Change::Host(self.host(), self.addresses(3)),
            _ => Change::Assignment(self.choose(&ASSIGNMENTS).into(), self.assignment()),
        }
    }

    fn listener(&mut self, i: usize) -> Change {
        let listener = match self.rng.below(20) {
            0 if !self.gentle => Listener::Socket,
            1 if !self.gentle => Listener::Rds(GHOST.into()),
            2..8 => Listener::Inline(self.routes()),
            _ => Listener::Rds(format!("r{}", self.channel())),
        };
        // Most channels that have no sessions have no filter for them; and a filter may come and go.
        let without = if self.settings.sessions { self.one_in(5) } else { !self.one_in(3) };
        let listener = if without { Listener::WithoutSessions(Box::new(listener)) } else { listener };
        Change::Listener(format!("l{i}"), listener)
    }

    fn routes(&mut self) -> Vec<Route> {
        let count = if self.gentle { 2 } else { 1 + self.rng.below(2) as usize };
        let routes = ["/a/", "/b/"].into_iter().take(count).map(|prefix| {
            // In gentle worlds the last route takes everything.
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

    fn leaf(&mut self) -> Cluster {
        let kind = match self.rng.below(12) {
            0..2 => ClusterKind::Dns(self.host()),
            2 if !self.gentle => ClusterKind::Dns(GHOST.into()),
            3 if !self.gentle => ClusterKind::Eds(GHOST.into()),
            _ => ClusterKind::Eds(self.choose(&ASSIGNMENTS).into()),
        };
        self.cluster(kind)
    }

    fn aggregate(&mut self) -> Cluster {
        let kind = match self.rng.below(6) {
            0..2 if self.settings.aggregate_resources => ClusterKind::List(self.choose(&LISTS).into()),
            2 if self.settings.aggregate_resources && !self.gentle && self.one_in(4) => {
                ClusterKind::List(GHOST.into())
            }
            // An aggregate may turn into a leaf.
            3 => return self.leaf(),
            _ => ClusterKind::Aggregate(self.children()),
        };
        self.cluster(kind)
    }

    fn cluster(&mut self, kind: ClusterKind) -> Cluster {
        let policy = match self.rng.below(12) {
            0 => Policy::RingHash,
            1 => Policy::LocalRings,
            2..=3 => Policy::PickFirst,
            4 => Policy::Nested,
            _ => Policy::RoundRobin,
        };
        let max_requests = (!self.gentle && self.one_in(5)).then(|| 1 + self.rng.below(3) as u32);
        Cluster {
            kind,
            policy,
            max_requests,
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

    fn outlier_detection(&mut self) -> OutlierDetection {
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
        OutlierDetection {
            interval: Duration::from_millis(500) + seconds(self, MAX_SWEEP_INTERVAL),
            base_ejection_time: seconds(self, MAX_EJECTION_TIME / 3),
            max_ejection_time: seconds(self, MAX_EJECTION_TIME),
            max_ejection_percent: percent(self),
            success_rate_ejection,
            failure_percentage_ejection,
        }
    }

    fn children(&mut self) -> Vec<String> {
        let count = 1 + self.rng.below(4);
        let name =
            |make: &mut Self| if !make.gentle && make.one_in(12) { GHOST.into() } else { make.any_cluster() };
        let mut names: Vec<String> = (0..count).map(|_| name(self)).collect();
        if self.gentle {
            // Aggregates alone may be a loop.
            names.push(self.choose(&LEAVES).into());
        }
        names
    }

    fn assignment(&mut self) -> Assignment {
        let mut free: Vec<u8> = (1..=BACKENDS).collect();
        self.rng.shuffle(&mut free);
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
            let endpoints = free.pop().map(Endpoint::new).into_iter().collect();
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

    fn behaviour(&mut self) -> Behaviour {
        match self.rng.below(10) {
            0..5 => Behaviour::Accepts(self.millis(50)),
            5 => Behaviour::Accepts(self.millis(15_000)),
            // Attempts to a host that says nothing outlast their backoff.
            6..8 => Behaviour::Refuses,
            8 if !self.settings.sessions => Behaviour::Refuses,
            _ => Behaviour::Silent,
        }
    }

    fn key(&mut self) -> Key {
        let resource_type = self.resource_type();
        let name = match resource_type {
            ResourceType::Listener => format!("l{}", self.channel()),
            ResourceType::RouteConfiguration => format!("r{}", self.channel()),
            ResourceType::Cluster => self.any_cluster(),
            ResourceType::ClusterLoadAssignment => self.choose(&ASSIGNMENTS).into(),
            ResourceType::AggregateClusterConfig => self.choose(&LISTS).into(),
        };
        (resource_type, name)
    }

    fn removable(&mut self) -> Key {
        match self.one_in(6) {
            true => (ResourceType::Listener, format!("l{}", self.channel())),
            false => (ResourceType::Cluster, self.any_cluster()),
        }
    }

    fn resource_type(&mut self) -> ResourceType {
        self.choose(&ResourceType::ALL)
    }

    fn any_cluster(&mut self) -> String {
        match self.one_in(3) {
            true => self.choose(&AGGREGATES).into(),
            false => self.choose(&LEAVES).into(),
        }
    }

    fn host(&mut self) -> String {
        self.choose(&HOSTS).into()
    }

    fn channel(&mut self) -> usize {
        self.rng.below(CHANNELS as u64) as usize
    }

    fn address(&mut self) -> SocketAddr {
        backend(1 + self.rng.below(u64::from(BACKENDS)) as u8)
    }

    fn addresses(&mut self, most: u64) -> Vec<SocketAddr> {
        let mut all: Vec<_> = (1..=BACKENDS).map(backend).collect();
        self.rng.shuffle(&mut all);
        all.truncate(1 + self.rng.below(most) as usize);
        all
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.rng.below(most))
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.rng.below(n) == 0
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        // `below` stays below the length, and no list here is empty.
        from[self.rng.below(from.len() as u64) as usize]
    }
}
