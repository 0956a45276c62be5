//! TLS settings of clusters (A29).

use envoy_types::pb::envoy::config::core::v3::TransportSocket;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext, UpstreamTlsContext,
};
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use super::pack;

/// TLS settings for [`ClusterExt::tls`](super::ClusterExt::tls): servers need a certificate of the roots of this
/// certificate provider instance.
pub fn upstream_tls(roots: &str) -> UpstreamTlsContext {
    let validation = CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance(roots)),
        ..Default::default()
    };
    let common = CommonTlsContext {
        validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
        ..Default::default()
    };
    UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() }
}

/// Further TLS settings of a cluster.
pub trait UpstreamTlsExt {
    /// Presents the certificate of this certificate provider instance to servers (mTLS).
    #[must_use]
    fn identity(self, instance: &str) -> Self;
    /// Adds a name that servers may have: each needs one of them among its subject alternative names.
    #[must_use]
    fn server_name(self, name: &str) -> Self;
    /// Adds a matcher for the subject alternative names of servers.
    #[must_use]
    fn match_server_name(self, matcher: StringMatcher) -> Self;
}

impl UpstreamTlsExt for UpstreamTlsContext {
    fn identity(mut self, name: &str) -> Self {
        let common = self.common_tls_context.get_or_insert_default();
        common.tls_certificate_provider_instance = Some(instance(name));
        self
    }

    fn server_name(self, name: &str) -> Self {
        let pattern = MatchPattern::Exact(name.into());
        self.match_server_name(StringMatcher { match_pattern: Some(pattern), ..Default::default() })
    }

    #[allow(deprecated, reason = "the field that gRFC A29 names")]
    fn match_server_name(mut self, matcher: StringMatcher) -> Self {
        let common = self.common_tls_context.get_or_insert_default();
        if let Some(ValidationContextType::ValidationContext(validation)) =
            &mut common.validation_context_type
        {
            validation.match_subject_alt_names.push(matcher);
        }
        self
    }
}

pub(super) fn transport_socket(tls: &UpstreamTlsContext) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".into(),
        config_type: Some(ConfigType::TypedConfig(pack(tls))),
    }
}

fn instance(name: &str) -> CertificateProviderPluginInstance {
    CertificateProviderPluginInstance { instance_name: name.into(), ..Default::default() }
}
