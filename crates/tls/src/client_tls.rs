//! The TLS of a client: its certificate providers, and the rustls configurations made of their latest content.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use proxyless_xds::bootstrap::{Bootstrap, CertificateFiles, CertificateProvider};
use proxyless_xds::resource::{RootCertificates, UpstreamTls};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::sign::SingleCertAndKey;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::crypto::{NoCryptoProvider, crypto_provider};
use crate::file_watcher::FileWatcher;
use crate::handshake::{self, HandshakeError, Secured};
use crate::identity::Identity;
use crate::settings::TlsSettings;
use crate::system;
use crate::trust::Trust;
use crate::verifier::Verifier;

/// The ALPN protocol of HTTP/2.
const H2: &[u8] = b"h2";
/// The maximum number of servers per configuration whose sessions are kept for resumption.
const MAX_SESSIONS: usize = 256;
/// The maximum number of configurations that are kept.
const MAX_CONFIGS: usize = 256;

/// The TLS of a client. One is enough for any number of channels with the same bootstrap; it may be used in several runtimes.
pub struct ClientTls {
    crypto: Arc<CryptoProvider>,
    clock: Arc<dyn TimeProvider>,
    /// The certificate provider instances of the bootstrap.
    instances: BTreeMap<String, CertificateFiles>,
    system: OnceCell<Arc<Trust>>,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    watchers: BTreeMap<CertificateFiles, Arc<FileWatcher>>,
    configs: HashMap<TlsSettings, Config>,
}

/// A rustls configuration and the material it was made of. A session must not be resumed after either has changed, because
/// the server is not verified again; so each configuration has its own sessions.
#[derive(Clone)]
struct Config {
    material: Material,
    config: Arc<ClientConfig>,
}

/// The key material of some settings.
#[derive(Clone)]
struct Material {
    trust: Arc<Trust>,
    identity: Option<Arc<Identity>>,
}

impl ClientTls {
    /// The TLS of a client with the certificate providers of this bootstrap. Files are read when they are first needed.
    ///
    /// # Errors
    ///
    /// If there is no cryptography.
    pub fn new(bootstrap: &Bootstrap) -> Result<Self, NoCryptoProvider> {
        Ok(Self::with(bootstrap, crypto_provider()?, Arc::new(DefaultTimeProvider)))
    }

    /// Like [`Self::new`], with this cryptography, and with a clock for the validity of certificates.
    #[must_use]
    pub fn with(bootstrap: &Bootstrap, crypto: Arc<CryptoProvider>, clock: Arc<dyn TimeProvider>) -> Self {
        let instances = bootstrap.certificate_providers().iter();
        let instances = instances.filter_map(|(name, provider)| match provider {
            CertificateProvider::FileWatcher(files) => Some((name.clone(), files.clone())),
            _ => None,
        });
        Self {
            crypto,
            clock,
            instances: instances.collect(),
            system: OnceCell::new(),
            cache: Mutex::default(),
        }
    }

    /// Secures a connection: verifies the server, presents the client's certificate if the server asks for one, and agrees on
    /// HTTP/2. The caller limits the time.
    ///
    /// `server_name` is that of [`TlsSettings::server_name`]. `peer` is the address of the server: sessions of servers
    /// without names are kept by address.
    ///
    /// # Errors
    ///
    /// Says which check has failed, or which file is missing.
    pub async fn handshake<IO>(
        &self,
        io: IO,
        settings: &TlsSettings,
        server_name: Option<&str>,
        peer: Option<IpAddr>,
    ) -> Result<Secured<IO>, HandshakeError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let server_name = handshake::server_name(settings, server_name, peer)?;
        let Config { config, material } = self.config(settings).await?;
        handshake::run(io, config, material.identity.as_deref(), server_name).await
    }

    /// The watcher of a certificate provider instance, if the bootstrap has it.
    #[must_use]
    pub fn instance(&self, name: &str) -> Option<Arc<FileWatcher>> {
        self.instances.get(name).map(|files| self.watcher(files))
    }

    async fn config(&self, settings: &TlsSettings) -> Result<Config, HandshakeError> {
        let material = match settings {
            TlsSettings::Upstream(tls) => self.upstream_material(tls).await?,
            TlsSettings::Server(files) => self.server_material(files).await?,
        };
        // The cache is consistent even if a holder panicked.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cache.configs.get(settings).filter(|known| known.material.same_as(&material)) {
            return Ok(known.clone());
        }
        let config = Config { config: Arc::new(self.make(settings.clone(), &material)?), material };
        // A control plane may invent settings without end.
        if cache.configs.len() >= MAX_CONFIGS {
            cache.configs.clear();
        }
        cache.configs.insert(settings.clone(), config.clone());
        Ok(config)
    }

    fn make(&self, settings: TlsSettings, material: &Material) -> Result<ClientConfig, HandshakeError> {
        let verifier = Verifier {
            trust: Arc::clone(&material.trust),
            settings,
            algorithms: self.crypto.signature_verification_algorithms,
        };
        let builder = ClientConfig::builder_with_details(Arc::clone(&self.crypto), Arc::clone(&self.clock))
            .with_safe_default_protocol_versions()
            .map_err(|error| HandshakeError::Tls(Box::new(error)))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &material.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let resolver = SingleCertAndKey::from(Arc::clone(identity.key()));
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
        };
        // A29-28: whatever the cluster says.
        config.alpn_protocols = vec![H2.to_vec()];
        config.resumption = Resumption::in_memory_sessions(MAX_SESSIONS);
        Ok(config)
    }

    async fn upstream_material(&self, tls: &UpstreamTls) -> Result<Material, HandshakeError> {
        let trust = match &tls.roots {
            // A82-05: where the cluster asks for them.
            RootCertificates::System => self.system_trust().await?,
            RootCertificates::Instance(name) => {
                let trust = self.known_instance(name)?.trust().await;
                trust
                    .map_err(HandshakeError::File)?
                    .ok_or_else(|| HandshakeError::NoRoots(name.to_string()))?
            }
        };
        let identity = match &tls.identity {
            None => None,
            Some(name) => {
                let identity = self.known_instance(name)?.identity().await.map_err(HandshakeError::File)?;
                Some(identity.ok_or_else(|| HandshakeError::NoIdentity(name.to_string()))?)
            }
        };
        Ok(Material { trust, identity })
    }

    async fn server_material(&self, files: &CertificateFiles) -> Result<Material, HandshakeError> {
        if files.identity.is_none() && files.roots.is_none() {
            return Ok(Material { trust: self.system_trust().await?, identity: None });
        }
        let watcher = self.watcher(files);
        let trust = watcher.trust().await.map_err(HandshakeError::File)?;
        let trust = match trust {
            Some(trust) => trust,
            // A65-02: without a file the system's roots are used.
            None => self.system_trust().await?,
        };
        let identity = watcher.identity().await.map_err(HandshakeError::File)?;
        Ok(Material { trust, identity })
    }

    /// The system's roots, loaded once.
    async fn system_trust(&self) -> Result<Arc<Trust>, HandshakeError> {
        let load = || async {
            let loaded = spawn_blocking(system::load).await.unwrap_or_else(|error| Err(error.to_string()));
            loaded.map(|roots| Arc::new(Trust::Roots(roots))).map_err(HandshakeError::System)
        };
        self.system.get_or_try_init(load).await.cloned()
    }

    fn known_instance(&self, name: &str) -> Result<Arc<FileWatcher>, HandshakeError> {
        self.instance(name).ok_or_else(|| HandshakeError::NoInstance(name.to_owned()))
    }

    /// A29-36: one watcher per configuration, whatever the number of instances and users.
    fn watcher(&self, files: &CertificateFiles) -> Arc<FileWatcher> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watcher) = cache.watchers.get(files) {
            return Arc::clone(watcher);
        }
        let watcher = FileWatcher::new(files.clone(), Arc::clone(&self.crypto), Arc::clone(&self.clock));
        cache.watchers.insert(files.clone(), Arc::clone(&watcher));
        watcher
    }
}

impl Material {
    /// Whether both are the same version of the same files.
    fn same_as(&self, other: &Self) -> bool {
        let same_identity = match (&self.identity, &other.identity) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        same_identity && Arc::ptr_eq(&self.trust, &other.trust)
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("instances", &self.instances).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proxyless_testkit::tls::Authority;

    use super::*;
    use crate::roots::Roots;

    fn client(roots: &Authority) -> (ClientTls, Arc<Trust>) {
        let bootstrap = Bootstrap::builder().server("localhost:1").build().unwrap();
        let trust = Arc::new(Trust::Roots(Roots::from_pem(roots.pem().as_bytes()).unwrap()));
        let client = ClientTls::new(&bootstrap).unwrap();
        client.system.set(Arc::clone(&trust)).unwrap();
        (client, trust)
    }

    fn upstream(sni: &str) -> TlsSettings {
        TlsSettings::Upstream(Arc::new(UpstreamTls {
            roots: RootCertificates::System,
            identity: None,
            match_subject_alt_names: vec![],
            sni: Some(sni.into()),
            auto_host_sni: false,
            auto_sni_san_validation: false,
        }))
    }

    #[tokio::test]
    async fn a65_02_a82_05_the_roots_of_the_system_are_used_where_asked_for() {
        let (client, trust) = client(&Authority::new("system"));
        for settings in [upstream("a"), TlsSettings::Server(CertificateFiles::default())] {
            client.config(&settings).await.unwrap();
            let cache = client.cache.lock().unwrap();
            assert!(Arc::ptr_eq(&cache.configs[&settings].material.trust, &trust));
            assert!(cache.watchers.is_empty(), "there are no files to watch");
        }
    }

    #[test]
    fn a29_36_instances_with_the_same_configuration_share_a_watcher() {
        let files = |file: &str| CertificateFiles {
            roots: Some(proxyless_xds::bootstrap::RootsFile::CaCertificates(file.into())),
            ..CertificateFiles::default()
        };
        let builder = Bootstrap::builder().server("localhost:1");
        let builder = [("a", "/one"), ("b", "/one"), ("c", "/two")]
            .iter()
            .fold(builder, |builder, (name, file)| builder.certificate_provider(*name, files(file)));
        let client = ClientTls::new(&builder.build().unwrap()).unwrap();
        let instance = |name| client.instance(name).unwrap();
        assert!(Arc::ptr_eq(&instance("a"), &instance("b")));
        assert!(!Arc::ptr_eq(&instance("a"), &instance("c")));
        assert!(client.instance("d").is_none());
    }

    #[tokio::test]
    async fn equal_settings_share_a_configuration_and_the_number_of_others_is_bounded() {
        let (client, _) = client(&Authority::new("system"));
        let first = client.config(&upstream("a")).await.unwrap();
        assert!(Arc::ptr_eq(&first.config, &client.config(&upstream("a")).await.unwrap().config));
        for i in 0..2 * MAX_CONFIGS {
            let other = client.config(&upstream(&format!("a{i}"))).await.unwrap();
            assert!(!Arc::ptr_eq(&first.config, &other.config));
        }
        assert!(client.cache.lock().unwrap().configs.len() <= MAX_CONFIGS);
    }
}
