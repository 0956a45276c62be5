//! The bootstrap: the management servers to use, and the identity of this node (gRFC A27).
//!
//! It is read from JSON text, from the environment (a file or inline) or made by a builder. Every `Bootstrap` value is
//! valid: an invalid one is reported as a [`BootstrapError`] that lists all problems.

mod builder;
mod certificate_provider;
mod credentials;
mod error;
mod json;
mod node;
mod options;
mod parse;
#[cfg(test)]
mod security_tests;
mod server;
mod server_lists;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3 as core;
use prost::Message as _;

pub use builder::BootstrapBuilder;
pub use certificate_provider::{CertificateFiles, CertificateProvider, IdentityFiles, RootsFile};
pub use credentials::{CallCreds, ChannelCreds};
pub use error::{BootstrapError, BootstrapProblem};
pub use node::NodeConfig;
pub use options::BootstrapOptions;
pub use server::{ServerConfig, ServerFeatures, ServerTarget};
pub use server_lists::ServerLists;

/// The environment variable that names the bootstrap file.
pub const FILE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP";
/// The environment variable that holds the bootstrap itself.
pub const INLINE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";

/// A valid bootstrap.
#[derive(Clone, Debug, PartialEq)]
pub struct Bootstrap {
    servers: Vec<ServerConfig>,
    node: NodeConfig,
    authorities: BTreeMap<String, Authority>,
    certificate_providers: BTreeMap<String, CertificateProvider>,
    client_listener_template: Option<String>,
    server_listener_template: Option<String>,
}

impl Bootstrap {
    /// Parses a bootstrap from its JSON text, for a client with the default [`BootstrapOptions`].
    ///
    /// # Errors
    ///
    /// Lists every problem with its JSON path.
    pub fn from_json(text: &str) -> Result<Self, BootstrapError> {
        Self::from_json_with(text, &BootstrapOptions::default())
    }

    /// Parses a bootstrap from its JSON text, for a client with these options.
    ///
    /// # Errors
    ///
    /// As [`Self::from_json`].
    pub fn from_json_with(text: &str, options: &BootstrapOptions) -> Result<Self, BootstrapError> {
        parse::bootstrap(text, options).map_err(|problems| BootstrapError::new("JSON text", problems))
    }

    /// Reads the bootstrap from the environment: from the file named by [`FILE_VARIABLE`], or else the text in
    /// [`INLINE_VARIABLE`].
    ///
    /// # Errors
    ///
    /// As [`Self::from_json`], with the file or variable that the text came from; also if neither variable is set or
    /// the file cannot be read.
    pub fn from_env() -> Result<Self, BootstrapError> {
        Self::from_env_with(&BootstrapOptions::default())
    }

    /// Like [`Self::from_env`], for a client with these options.
    ///
    /// # Errors
    ///
    /// As [`Self::from_env`].
    pub fn from_env_with(options: &BootstrapOptions) -> Result<Self, BootstrapError> {
        Self::from_sources(|name| std::env::var(name).ok(), |path| std::fs::read_to_string(path), options)
    }

    /// [`Self::from_env_with`], given the lookup of a variable and the reader of a file.
    fn from_sources(
        variable: impl Fn(&str) -> Option<String>,
        read_file: impl Fn(&Path) -> io::Result<String>,
        options: &BootstrapOptions,
    ) -> Result<Self, BootstrapError> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        // A27-10, A27-11: the file wins over the inline text.
        let (source, text) = if let Some(path) = set(FILE_VARIABLE) {
            let source = format!("file {path} (named by {FILE_VARIABLE})");
            match read_file(Path::new(&path)) {
                Ok(text) => (source, text),
                // A27-12: a missing file is an error, even if the other variable is set.
                Err(error) => {
                    let why = format!("cannot be read: {error}");
                    return Err(BootstrapError::new(source, vec![BootstrapProblem::new("", why)]));
                }
            }
        } else if let Some(text) = set(INLINE_VARIABLE) {
            (format!("variable {INLINE_VARIABLE}"), text)
        } else {
            let why = format!(
                "none given: set {FILE_VARIABLE} to a file's path, or {INLINE_VARIABLE} to its content"
            );
            return Err(BootstrapError::new("environment", vec![BootstrapProblem::new("", why)]));
        };
        parse::bootstrap(&text, options).map_err(|problems| BootstrapError::new(source, problems))
    }

    /// Starts building a bootstrap in code.
    pub fn builder() -> BootstrapBuilder {
        BootstrapBuilder::default()
    }

    /// The first server of the top-level list. The others are used while it is unreachable (gRFC A71).
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "both ways to make a bootstrap refuse an empty list (A27-13)")]
    pub fn server(&self) -> &ServerConfig {
        &self.servers[0]
    }

    /// All servers, in order; never empty.
    #[must_use]
    pub fn servers(&self) -> &[ServerConfig] {
        &self.servers
    }

    /// The node id.
    #[must_use]
    pub fn node_id(&self) -> &str {
        &self.node.id
    }

    /// The encoded `envoy.config.core.v3.Node`, as the management server and CSDS see it: the fields of the bootstrap
    /// and those that the client fills in itself.
    #[must_use]
    pub fn encoded_node(&self) -> Bytes {
        self.node().encode_to_vec().into()
    }

    /// The message of [`Self::encoded_node`].
    pub(crate) fn node(&self) -> core::Node {
        self.node.to_proto()
    }

    /// The authorities of gRFC A47, by name.
    #[must_use]
    pub fn authorities(&self) -> &BTreeMap<String, Authority> {
        &self.authorities
    }

    /// The certificate providers of gRFC A29, by instance name.
    #[must_use]
    pub fn certificate_providers(&self) -> &BTreeMap<String, CertificateProvider> {
        &self.certificate_providers
    }

    /// The instance names that a Cluster may refer to: those of supported plugins.
    #[must_use]
    pub fn certificate_provider_names(&self) -> BTreeSet<String> {
        let supported =
            |provider: &CertificateProvider| matches!(provider, CertificateProvider::FileWatcher(_));
        let providers = self.certificate_providers.iter().filter(|(_, provider)| supported(provider));
        providers.map(|(name, _)| name.clone()).collect()
    }

    /// `client_default_listener_resource_name_template` (gRFC A47), if present: the name of the Listener of a target
    /// without an authority, with `%s` for the target's name.
    #[must_use]
    pub fn client_default_listener_resource_name_template(&self) -> Option<&str> {
        self.client_listener_template.as_deref()
    }

    /// `server_listener_resource_name_template` (gRFC A36). It is not used yet.
    #[must_use]
    pub fn server_listener_resource_name_template(&self) -> Option<&str> {
        self.server_listener_template.as_deref()
    }
}

/// An entry of `authorities` (gRFC A47).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Authority {
    /// The template of Listener names, if present; starts with `xdstp://<authority>/`.
    pub client_listener_resource_name_template: Option<String>,
    /// The authority's servers; if empty, the bootstrap's servers apply.
    pub servers: Vec<ServerConfig>,
}
