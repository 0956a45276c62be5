//! Random steps.

use std::time::Duration;

use proxyless_sans_io::Time;
use proxyless_xds::resource::ResourceType;

use super::{AGGREGATES, ASSIGNMENTS, LEAVES, LISTS, Maker, PATHS};
use crate::clients::endpoints::Behaviour;
use crate::script::config::Key;
use crate::script::{Action, CallSpec, Change, CutTime, Fault, Loss, Step};
use crate::servers::load_server::LoadReportRequest;

impl Maker {
    pub(super) fn steps(&mut self) -> Vec<Step> {
        let mut at = Time::ZERO;
        let mut steps = vec![Step { at, action: Action::Start(0) }];
        if self.settings.load {
            steps.push(Step { at, action: Action::RequestLoad(self.load_request()) });
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
                // Long enough for deactivated children to be dropped.
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

    /// RPCs of a session whose hosts have just stopped responding, and time for a connection attempt to fail.
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
            // A channel that left IDLE has no configuration while the control plane is unreachable.
            30..35 if self.settings.idle_timeout.is_some() => Action::SendAgain(self.resource_type()),
            30..32 => Action::CutStream(if self.one_in(2) { Loss::Everything } else { Loss::Nothing }),
            // The server is unreachable at once, as if it were restarted.
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
            4 => Action::RequestLoad(self.load_request()),
            5..7 => Action::ToggleLoad(self.any_cluster()),
            7 => Action::LoadGarbage,
            8 => Action::RefuseLoadStreams,
            _ => Action::AcceptLoadStreams,
        }
    }

    fn load_request(&mut self) -> LoadReportRequest {
        let names =
            LEAVES.into_iter().chain(AGGREGATES).filter(|_| !self.one_in(6)).map(Into::into).collect();
        LoadReportRequest { interval: self.millis(12_000), clusters: self.one_in(4).then_some(names) }
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

    fn behaviour(&mut self) -> Behaviour {
        match self.rng.below(10) {
            0..5 => Behaviour::Accepts(self.millis(50)),
            5 => Behaviour::Accepts(self.millis(15_000)),
            // Attempts to a host that does not respond outlast their backoff.
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
}
