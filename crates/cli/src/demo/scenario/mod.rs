//! The scenarios of the demo. Each is a separate file: a mesh, and phases that change it and expect RPCs to move. To
//! add one, add a file and an entry in [`ScenarioName`].

mod failover;
mod mtls;
mod outlier;
mod regions;
mod sessions;

use clap::ValueEnum;
use proxyless::Gates;
use proxyless_testkit::Resource;

use super::mesh::{Group, Mesh};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScenarioName {
    /// An aggregate of two EDS clusters and a DNS cluster: they die one after the other, come back, and are reordered
    Failover,
    /// One cluster with two priorities: the near region dies and comes back
    Regions,
    /// Users with cookies: they stay on their hosts when those move to a lower priority, and move when those die
    Sessions,
    /// One backend starts to fail, is ejected, recovers and comes back
    Outlier,
    /// Mutual TLS: certificates rotate under load, backends present a wrong identity, and RPCs go elsewhere
    Mtls,
}

impl ScenarioName {
    pub(super) fn scenario(self) -> &'static Scenario {
        match self {
            Self::Failover => &failover::SCENARIO,
            Self::Regions => &regions::SCENARIO,
            Self::Sessions => &sessions::SCENARIO,
            Self::Outlier => &outlier::SCENARIO,
            Self::Mtls => &mtls::SCENARIO,
        }
    }
}

pub(super) struct Scenario {
    /// The target of the channel.
    pub(super) target: &'static str,
    /// The approximate duration by default.
    pub(super) seconds: u64,
    /// Opens the required feature gates.
    pub(super) gates: fn(&mut Gates),
    /// The SPIFFE id of all backends, if connections have mTLS.
    pub(super) server_id: Option<&'static str>,
    pub(super) groups: &'static [Group],
    /// The localities that report load.
    pub(super) reported: &'static [Reported],
    /// The initial resources.
    pub(super) resources: fn(&Mesh) -> Vec<Resource>,
    pub(super) phases: &'static [Phase],
}

/// A locality of a cluster that reports its load.
pub(super) struct Reported {
    pub(super) cluster: &'static str,
    /// Empty for a cluster without localities.
    pub(super) zone: &'static str,
    /// The groups whose answers are its load.
    pub(super) groups: &'static [Group],
}

pub(super) struct Phase {
    pub(super) title: &'static str,
    /// The changes at its start.
    pub(super) acts: &'static [Act],
    /// The groups that answer all RPCs without a session at its end; each of them some.
    pub(super) expect: &'static [Group],
    /// The groups that may answer in between, besides those before.
    pub(super) via: &'static [Group],
    /// Its share of the demo's duration, relative to the other phases.
    pub(super) share: u32,
}

pub(super) enum Act {
    /// A change of the mesh.
    Mesh(Change),
    /// This many more users start a session.
    LogIn(usize),
}

/// A change of the mesh.
pub(super) enum Change {
    Kill(Group),
    Restart(Group),
    /// The group fails all RPCs from now on.
    Fail(Group),
    Recover(Group),
    /// The client and all backends get new certificates.
    RotateCertificates,
    /// The group presents certificates of another service.
    Impersonate(Group),
    /// The group presents certificates of its own again.
    Identify(Group),
    /// The control plane sends new resources.
    Set(fn(&Mesh) -> Vec<Resource>),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn scenarios_are_sound() {
        for name in ScenarioName::value_variants() {
            let Scenario { target, seconds, groups, reported, phases, .. } = name.scenario();
            assert!(target.starts_with("xds:///"), "{name:?}");
            assert!((1..=20).contains(seconds), "{name:?}");
            // The timeline shows first letters.
            let letters: BTreeSet<_> = groups.iter().map(|group| group.letter()).collect();
            assert_eq!(letters.len(), groups.len(), "{name:?}");
            // Every answer belongs to exactly one locality.
            let counted: Vec<_> = reported.iter().flat_map(|of| of.groups).collect();
            assert!(groups.iter().all(|group| counted.iter().filter(|of| **of == group).count() == 1));
            assert!(phases.len() > 1, "{name:?}");
            for phase in *phases {
                assert!(phase.share > 0 && !phase.expect.is_empty(), "{}", phase.title);
                assert!(phase.title.len() <= 40, "{} is too long for the summary", phase.title);
                assert!(phase.via.iter().chain(phase.expect).all(|group| groups.contains(group)));
            }
            // A phase that expects the current state would show nothing, unless connections change.
            let rotates = |phase: &Phase| {
                phase.acts.iter().any(|act| matches!(act, Act::Mesh(Change::RotateCertificates)))
            };
            let shows = |two: &[Phase]| two[0].expect != two[1].expect || rotates(&two[1]);
            assert!(phases.windows(2).all(shows), "{name:?}");
        }
    }
}
