//! The TLS settings of endpoints (gRFC A29): equal ones are one value with one id, so that clusters share connections.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use proxyless_balancer::api::Security;
use proxyless_xds::resource::UpstreamTls;

/// The type of the settings in a [`Security`] of this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointTls {
    /// The settings of the cluster.
    pub tls: Arc<UpstreamTls>,
    /// The hostname of the endpoint, if the server name is made of it (`auto_host_sni`, gRFC A101).
    pub hostname: Option<Arc<str>>,
}

/// Whether a channel uses the TLS settings of clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterTls {
    /// They are used: the channel has xDS credentials.
    #[default]
    Used,
    /// A29-04: they are ignored.
    Ignored,
}

/// The TLS settings in use in a channel. Clones share them.
#[derive(Clone, Default)]
pub struct SecurityRegistry {
    used: ClusterTls,
    settings: Arc<Mutex<Settings>>,
}

#[derive(Default)]
struct Settings {
    last_id: u64,
    /// By hostname, because there may be as many as endpoints.
    known: BTreeMap<Option<Arc<str>>, Vec<Weak<Security>>>,
    /// The number of additions after which those that are not in use any more are removed.
    additions_left: usize,
}

impl SecurityRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new(used: ClusterTls) -> Self {
        Self { used, settings: Arc::default() }
    }

    /// The security of the endpoints of a cluster with these settings.
    pub(crate) fn of_cluster(&self, tls: Option<&Arc<UpstreamTls>>) -> ClusterSecurity {
        let tls = tls.filter(|_| self.used == ClusterTls::Used).cloned();
        let unnamed = tls.as_ref().map(|tls| self.get(EndpointTls { tls: Arc::clone(tls), hostname: None }));
        ClusterSecurity { registry: self.clone(), tls, unnamed }
    }

    fn get(&self, tls: EndpointTls) -> Arc<Security> {
        // The value is consistent even if a holder panicked.
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).get(tls)
    }
}

impl Settings {
    fn get(&mut self, tls: EndpointTls) -> Arc<Security> {
        let known = self.known.get(&tls.hostname).into_iter().flatten().filter_map(Weak::upgrade);
        if let Some(known) = known.into_iter().find(|known| known.settings() == Some(&tls)) {
            return known;
        }
        self.make_room();
        self.last_id += 1;
        let hostname = tls.hostname.clone();
        let security = Arc::new(Security::new(self.last_id, tls));
        self.known.entry(hostname).or_default().push(Arc::downgrade(&security));
        security
    }

    /// A control plane may invent settings without end.
    fn make_room(&mut self) {
        if let Some(left) = self.additions_left.checked_sub(1) {
            self.additions_left = left;
            return;
        }
        self.known.retain(|_, settings| {
            settings.retain(|settings| settings.strong_count() > 0);
            !settings.is_empty()
        });
        self.additions_left = self.known.values().map(Vec::len).sum::<usize>() + 16;
    }
}

impl PartialEq for SecurityRegistry {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.settings, &other.settings)
    }
}

impl fmt::Debug for SecurityRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecurityRegistry").field("used", &self.used).finish_non_exhaustive()
    }
}

/// The security of the endpoints of one cluster.
pub struct ClusterSecurity {
    registry: SecurityRegistry,
    tls: Option<Arc<UpstreamTls>>,
    /// That of endpoints whose hostname does not matter.
    unnamed: Option<Arc<Security>>,
}

impl ClusterSecurity {
    /// The security of an endpoint with this hostname. A101-01, A101-09: each hostname that is sent has its own.
    pub(crate) fn of(&self, hostname: Option<&Arc<str>>) -> Option<Arc<Security>> {
        match (&self.tls, hostname) {
            (Some(tls), Some(hostname)) if tls.auto_host_sni => {
                let hostname = Some(Arc::clone(hostname));
                Some(self.registry.get(EndpointTls { tls: Arc::clone(tls), hostname }))
            }
            _ => self.unnamed.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proxyless_xds::resource::RootCertificates;

    use super::*;

    fn tls(sni: &str, auto_host_sni: bool) -> Arc<UpstreamTls> {
        Arc::new(UpstreamTls {
            roots: RootCertificates::System,
            identity: None,
            match_subject_alt_names: vec![],
            sni: Some(sni.into()),
            auto_host_sni,
            auto_sni_san_validation: false,
        })
    }

    fn id(registry: &SecurityRegistry, tls: &Arc<UpstreamTls>, hostname: &str) -> u64 {
        registry.of_cluster(Some(tls)).of(Some(&hostname.into())).unwrap().id()
    }

    #[test]
    fn a29_09_equal_settings_are_one_and_others_differ() {
        let registry = SecurityRegistry::default();
        let kept = registry.of_cluster(Some(&tls("a", false)));
        let first = kept.of(None).unwrap();
        assert_eq!(id(&registry, &tls("a", false), "h"), first.id());
        assert_ne!(id(&registry, &tls("b", false), "h"), first.id());
        assert!(registry.of_cluster(None).of(None).is_none());
    }

    #[test]
    fn a101_09_the_hostname_counts_only_if_it_is_sent() {
        let registry = SecurityRegistry::default();
        let (plain, named) = (tls("a", false), tls("a", true));
        let kept: Vec<_> = [&plain, &named].map(|tls| registry.of_cluster(Some(tls)).of(None)).into();
        assert_eq!(id(&registry, &plain, "g"), id(&registry, &plain, "h"));
        let host: Arc<str> = "g".into();
        let of_host = registry.of_cluster(Some(&named)).of(Some(&host)).unwrap();
        assert_eq!(id(&registry, &named, "g"), of_host.id());
        assert_ne!(id(&registry, &named, "h"), of_host.id());
        drop(kept);
    }

    #[test]
    fn a29_04_ignored_settings_are_as_good_as_none() {
        let registry = SecurityRegistry::new(ClusterTls::Ignored);
        assert!(registry.of_cluster(Some(&tls("a", true))).of(Some(&"h".into())).is_none());
    }

    #[test]
    fn settings_that_are_not_used_any_more_are_forgotten() {
        let registry = SecurityRegistry::default();
        for i in 0..1000 {
            id(&registry, &tls("a", true), &format!("h{i}"));
        }
        assert!(registry.settings.lock().unwrap().known.len() < 100);
    }
}
