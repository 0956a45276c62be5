//! Building a bootstrap in code.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Bootstrap;
use super::certificate_provider::{CertificateFiles, CertificateProvider};
use super::credentials::{CallCreds, ChannelCreds};
use super::error::{BootstrapError, BootstrapProblem};
use super::node::NodeConfig;
use super::server::{ServerConfig, ServerFeatures, ServerTarget};
use crate::resource::Locality;

/// Builds a [`Bootstrap`] in code. [`Self::build`] reports all problems at once.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct BootstrapBuilder {
    servers: Vec<Server>,
    node: NodeConfig,
    metadata: Option<Value>,
    certificate_providers: BTreeMap<String, CertificateProvider>,
}

#[derive(Clone, Debug)]
struct Server {
    uri: String,
    channel_creds: ChannelCreds,
    call_creds: Vec<CallCreds>,
    features: ServerFeatures,
}

impl BootstrapBuilder {
    /// Adds a management server, reached without TLS. The first one is used.
    pub fn server(self, uri: impl Into<String>) -> Self {
        self.server_with_features(uri, ServerFeatures::default())
    }

    /// Adds a management server with `server_features`.
    pub fn server_with_features(mut self, uri: impl Into<String>, features: ServerFeatures) -> Self {
        let (channel_creds, call_creds) = (ChannelCreds::Insecure, Vec::new());
        self.servers.push(Server { uri: uri.into(), channel_creds, call_creds, features });
        self
    }

    /// Adds a management server with credentials.
    pub fn server_with_creds(
        mut self,
        uri: impl Into<String>,
        channel_creds: ChannelCreds,
        call_creds: Vec<CallCreds>,
        features: ServerFeatures,
    ) -> Self {
        self.servers.push(Server { uri: uri.into(), channel_creds, call_creds, features });
        self
    }

    /// Adds an instance of the certificate provider plugin `file_watcher` (gRFC A29).
    pub fn certificate_provider(mut self, instance_name: impl Into<String>, files: CertificateFiles) -> Self {
        let provider = CertificateProvider::FileWatcher(files);
        self.certificate_providers.insert(instance_name.into(), provider);
        self
    }

    /// Sets the node id.
    pub fn node_id(mut self, id: impl Into<String>) -> Self {
        self.node.id = id.into();
        self
    }

    /// Sets the node's cluster.
    pub fn node_cluster(mut self, cluster: impl Into<String>) -> Self {
        self.node.cluster = cluster.into();
        self
    }

    /// Sets the node's locality.
    pub fn locality(mut self, locality: Locality) -> Self {
        self.node.locality = Some(locality);
        self
    }

    /// Sets the node's metadata: a JSON object.
    pub fn metadata(mut self, metadata: Value) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Builds the bootstrap.
    ///
    /// # Errors
    ///
    /// Lists every problem, by the path that the field has in the JSON form.
    pub fn build(self) -> Result<Bootstrap, BootstrapError> {
        let mut problems = Vec::new();
        let mut servers = Vec::new();
        for (i, Server { uri, channel_creds, call_creds, features }) in self.servers.into_iter().enumerate() {
            match ServerTarget::parse(&uri) {
                Ok(target) => {
                    servers.push(ServerConfig { uri, target, channel_creds, call_creds, features });
                }
                Err(why) => {
                    problems.push(BootstrapProblem::new(format!("xds_servers[{i}].server_uri"), why));
                }
            }
        }
        if servers.is_empty() && problems.is_empty() {
            problems.push(BootstrapProblem::new(
                "xds_servers",
                "is empty: at least one management server is needed",
            ));
        }
        let mut node = self.node;
        match self.metadata {
            None | Some(Value::Null) => {}
            Some(Value::Object(metadata)) => node.metadata = Some(metadata),
            Some(_) => problems.push(BootstrapProblem::new("node.metadata", "must be an object")),
        }
        if !problems.is_empty() {
            return Err(BootstrapError::new("builder", problems));
        }
        Ok(Bootstrap {
            servers,
            node,
            authorities: Default::default(),
            certificate_providers: self.certificate_providers,
            client_listener_template: None,
            server_listener_template: None,
        })
    }
}
