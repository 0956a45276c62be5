//! Random meshes and random scripts.

use std::net::SocketAddr;
use std::time::Duration;

use proxyless_sans_io::Rng;
use proxyless_xds::resource::ResourceType;

use crate::script::config::backend;
use crate::script::{Mood, Script, ServerHabits, Settings};

mod extras;
mod mesh;
mod steps;

/// The maximum number of channels in a world.
pub(crate) const CHANNELS: usize = 2;
pub(crate) const BACKENDS: u8 = 10;
const ASSIGNMENTS: [&str; 4] = ["e0", "e1", "e2", "e3"];
const LEAVES: [&str; 5] = ["c0", "c1", "c2", "c3", "d0"];
const AGGREGATES: [&str; 3] = ["g0", "g1", "g2"];
const LISTS: [&str; 2] = ["x0", "x1"];
const HOSTS: [&str; 2] = ["h0.test", "h1.test"];
/// The longest session idle timeout in a world with sessions.
pub(crate) const MAX_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest ejection.
pub(crate) const MAX_EJECTION_TIME: Duration = Duration::from_secs(40);
/// The longest interval between two outlier detection sweeps.
pub(crate) const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Names that no resource ever has.
const GHOST: &str = "ghost";
/// The paths of RPCs; the routes match at most two of the prefixes.
pub(crate) const PATHS: [&str; 3] = ["/a/m", "/b/m", "/c/m"];

/// The script of a seed.
pub(crate) fn script(seed: u64) -> Script {
    let mut script = plain_script(seed);
    extras::add(&mut script);
    script
}

/// The script of a seed without later extensions.
pub(crate) fn plain_script(seed: u64) -> Script {
    let mut make = Maker { rng: Rng::new(seed ^ 0x5eed), settings: Settings::default(), gentle: false };
    let settings = Settings { idle_timeout: idle_timeout(seed), ..make.settings() };
    make.settings = settings;
    make.gentle = settings.mood == Mood::Gentle;
    let mesh = make.mesh();
    let steps = make.steps();
    Script { seed, settings, mesh, steps }
}

/// Channels go IDLE in one of four worlds.
fn idle_timeout(seed: u64) -> Option<Duration> {
    // Drawn separately: the rest of a seed's world does not depend on it.
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
            // Calls may fail for valid reasons and so eject all endpoints.
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
        // Not drawn, so that the other settings of a seed do not change.
        settings.server.resends_rejected = settings.load != settings.sessions;
        settings
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
        // `below` is less than the length, and no list here is empty.
        from[self.rng.below(from.len() as u64) as usize]
    }
}
