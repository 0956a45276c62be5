//! Certificate files: the plugin `file_watcher` (gRFC A29, A87) and the channel credentials `tls` (gRFC A65).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::json::{Place, Problems};
use super::options::BootstrapOptions;
use crate::Gates;

/// A65-04: the interval at which files are read unless the configuration sets one.
const DEFAULT_REFRESH_INTERVAL: Duration = Duration::from_secs(600);
/// The largest number of seconds of a protobuf Duration.
const MAX_SECONDS: u64 = 315_576_000_000;

/// An entry of `certificate_providers` (gRFC A29).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateProvider {
    /// The plugin `file_watcher`.
    FileWatcher(CertificateFiles),
    /// A plugin that the client does not have. Clusters that name its instance are rejected.
    Unsupported {
        /// The name of the plugin.
        plugin_name: String,
    },
}

/// The files of certificates and keys, and how often they are read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertificateFiles {
    /// The client's own certificate, if it has one.
    pub identity: Option<IdentityFiles>,
    /// The certificates that peers are verified with, if there are any.
    pub roots: Option<RootsFile>,
    /// The interval at which the files are read again.
    pub refresh_interval: Duration,
}

impl Default for CertificateFiles {
    fn default() -> Self {
        Self { identity: None, roots: None, refresh_interval: DEFAULT_REFRESH_INTERVAL }
    }
}

/// The files of a certificate chain and its private key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdentityFiles {
    /// `certificate_file`: the chain, leaf first, as PEM.
    pub certificate_file: PathBuf,
    /// `private_key_file`: the key of the leaf, as PEM.
    pub private_key_file: PathBuf,
}

/// The file of root certificates. A87-01: never both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RootsFile {
    /// `ca_certificate_file`: certificates as PEM.
    CaCertificates(PathBuf),
    /// `spiffe_trust_bundle_map_file`: a SPIFFE trust bundle map as JSON (gRFC A87).
    SpiffeBundleMap(PathBuf),
}

/// A29-31: parses `certificate_providers`.
pub(super) fn certificate_providers(
    root: &Place<'_>,
    options: &BootstrapOptions,
    problems: &mut Problems,
) -> BTreeMap<String, CertificateProvider> {
    let Some(field) = root.field("certificate_providers") else { return BTreeMap::new() };
    let mut providers = BTreeMap::new();
    for (name, entry) in field.entries(problems) {
        if let Some(provider) = certificate_provider(&entry, options, problems) {
            providers.insert(name.to_owned(), provider);
        }
    }
    providers
}

fn certificate_provider(
    entry: &Place<'_>,
    options: &BootstrapOptions,
    problems: &mut Problems,
) -> Option<CertificateProvider> {
    entry.object(problems)?;
    let plugin_name = entry.required_string("plugin_name", problems)?;
    let config = entry.field("config");
    if let Some(config) = &config {
        config.object(problems)?;
    }
    if plugin_name != "file_watcher" {
        return Some(CertificateProvider::Unsupported { plugin_name: plugin_name.to_owned() });
    }
    let files = config.as_ref().map_or_else(
        || Some(CertificateFiles::default()),
        |config| certificate_files(config, &options.gates, problems),
    )?;
    // A65-05: a provider without certificates is useless.
    if files.identity.is_none() && files.roots.is_none() {
        let reason = "must have certificate_file or ca_certificate_file";
        return problems.fail(&entry.path_of("config"), reason);
    }
    Some(CertificateProvider::FileWatcher(files))
}

/// A29-33: parses the files of a `config`. A87-16: the trust bundle map is read only behind its gate.
pub(super) fn certificate_files(
    config: &Place<'_>,
    gates: &Gates,
    problems: &mut Problems,
) -> Option<CertificateFiles> {
    let path = |name: &str, problems: &mut Problems| -> Result<Option<PathBuf>, ()> {
        match config.field(name) {
            None => Ok(None),
            Some(_) => config.required_string(name, problems).map(|text| Some(text.into())).ok_or(()),
        }
    };
    let certificate_file = path("certificate_file", problems);
    let private_key_file = path("private_key_file", problems);
    let identity = match (certificate_file, private_key_file) {
        (Ok(None), Ok(None)) => Ok(None),
        (Ok(Some(certificate_file)), Ok(Some(private_key_file))) => {
            Ok(Some(IdentityFiles { certificate_file, private_key_file }))
        }
        // A65-03: both or none.
        (Ok(Some(_)), Ok(None)) => {
            problems.add(&config.path_of("private_key_file"), "must be set, because certificate_file is");
            Err(())
        }
        (Ok(None), Ok(Some(_))) => {
            problems.add(&config.path_of("certificate_file"), "must be set, because private_key_file is");
            Err(())
        }
        (Err(()), _) | (_, Err(())) => Err(()),
    };
    let ca_certificates = path("ca_certificate_file", problems);
    let bundle_map =
        if gates.mtls_spiffe { path("spiffe_trust_bundle_map_file", problems) } else { Ok(None) };
    let refresh_interval = match config.field("refresh_interval") {
        None => Some(DEFAULT_REFRESH_INTERVAL),
        Some(field) => field.string(problems).and_then(|text| {
            duration(text).or_else(|| {
                let reason = format!("{text:?} is not a duration such as \"600s\" or \"1.5s\"");
                problems.fail(field.path(), reason)
            })
        }),
    };
    // A87-09: with a trust bundle map the CA certificates are ignored.
    let roots = match (bundle_map, ca_certificates) {
        (Ok(Some(file)), Ok(_)) => Ok(Some(RootsFile::SpiffeBundleMap(file))),
        (Ok(None), Ok(file)) => Ok(file.map(RootsFile::CaCertificates)),
        (Err(()), _) | (_, Err(())) => Err(()),
    };
    Some(CertificateFiles {
        identity: identity.ok()?,
        roots: roots.ok()?,
        refresh_interval: refresh_interval?,
    })
}

/// A29-34: a duration in proto JSON that is not negative: `1s`, `1.5s`, with at most nine decimals.
fn duration(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 9 {
        return None;
    }
    let seconds = whole.parse().ok().filter(|seconds| *seconds <= MAX_SECONDS)?;
    let nanos = format!("{decimals:0<9}").parse().ok()?;
    Some(Duration::new(seconds, nanos))
}
