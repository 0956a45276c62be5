//! The certificate provider instances that clusters and bootstraps name.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, UpstreamTlsContext,
};
use prost::Message as _;
use proxyless_testkit::CDS;

use super::Item;
use crate::file::problem::Problems;
use crate::file::yaml;
use crate::{Mesh, Messages, Source};

/// The instances of the bootstraps among the files; if there are none, those that clusters of the files name, because
/// then nothing is known about them.
#[must_use]
pub fn provider_instances(sources: &[Source], messages: &Messages) -> BTreeSet<String> {
    let mut of_bootstraps = None;
    let mut meshes = Vec::new();
    for source in sources {
        let documents =
            yaml::documents(&source.text, yaml::Syntax::of(&source.name), &mut Problems::of(&source.name));
        let bootstrap = documents.iter().find(|one| one.entry("xds_servers").is_some());
        match bootstrap {
            Some(bootstrap) => {
                let providers = bootstrap.get("certificate_providers").map(|node| node.entries());
                let names = providers.unwrap_or_default().iter().map(|entry| entry.key.clone());
                of_bootstraps.get_or_insert_with(BTreeSet::new).extend(names);
            }
            None => meshes.push(source.clone()),
        }
    }
    of_bootstraps.unwrap_or_else(|| {
        Mesh::read(&meshes, messages).map(|mesh| instances_of(&mesh.items())).unwrap_or_default()
    })
}

/// The instances that clusters name.
#[must_use]
pub fn instances_of(items: &[Item]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for item in items.iter().filter(|item| item.type_url == CDS) {
        let socket = Cluster::decode(&item.value.value[..]).ok().and_then(|cluster| cluster.transport_socket);
        let Some(ConfigType::TypedConfig(config)) = socket.and_then(|socket| socket.config_type) else {
            continue;
        };
        let tls = UpstreamTlsContext::decode(&config.value[..]).unwrap_or_default();
        let common = tls.common_tls_context.unwrap_or_default();
        names.extend(common.tls_certificate_provider_instance.map(|instance| instance.instance_name));
        let validation = match common.validation_context_type {
            Some(ValidationContextType::ValidationContext(context)) => context,
            Some(ValidationContextType::CombinedValidationContext(combined)) => {
                combined.default_validation_context.unwrap_or_default()
            }
            _ => CertificateValidationContext::default(),
        };
        names.extend(validation.ca_certificate_provider_instance.map(|instance| instance.instance_name));
    }
    names
}
