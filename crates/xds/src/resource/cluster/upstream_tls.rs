//! The TLS settings of a cluster: the `UpstreamTlsContext` of its transport socket (gRFC A29, A82, A101).

use std::sync::Arc;

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as wire;
use wire::common_tls_context::{CertificateProviderInstance, ValidationContextType};

use crate::resource::extension::Extension;
use crate::resource::field::Field;
use crate::resource::matcher::string_matcher;
use crate::resource::{StringMatchKind, StringMatcher};

/// A101-10: the maximum length of `sni`.
const MAX_SNI_LENGTH: usize = 255;

/// The TLS settings of the connections to a cluster's endpoints. Equal settings may share connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamTls {
    /// The certificates that servers are verified with.
    pub roots: RootCertificates,
    /// The certificate provider instance of the client's own certificate, if it has one.
    pub identity: Option<Arc<str>>,
    /// One of these must match one of the server's subject alternative names; if there are none, any server with a
    /// valid certificate is accepted.
    pub match_subject_alt_names: Vec<StringMatcher>,
    /// The server name to send (gRFC A101), not empty.
    pub sni: Option<Arc<str>>,
    /// Whether the hostname of the endpoint, if it has one, is sent instead of `sni` (gRFC A101).
    pub auto_host_sni: bool,
    /// Whether the server's certificate must be for the server name that was sent, if any, instead of matching
    /// `match_subject_alt_names` (gRFC A101).
    pub auto_sni_san_validation: bool,
}

/// The source of root certificates. A82-03: never both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RootCertificates {
    /// A certificate provider instance of the bootstrap, by name.
    Instance(Arc<str>),
    /// The system's root certificates (gRFC A82).
    System,
}

/// Validates an `UpstreamTlsContext`; `at` is its transport socket, `at_config` the config in that.
pub(super) fn upstream_tls(
    at: &Field<'_>,
    at_config: &Field<'_>,
    extension: &Extension<'_>,
) -> Option<UpstreamTls> {
    let proto: wire::UpstreamTlsContext = extension.decode(at_config)?;
    // A29-03: a cluster that requires TLS must not be served in plaintext.
    if at.context().certificate_providers.is_none() {
        return at.fail("TLS to endpoints is not supported by this client");
    }
    context(at_config, &proto)
}

fn context(at: &Field<'_>, proto: &wire::UpstreamTlsContext) -> Option<UpstreamTls> {
    let gate = at.context().gates.sni;
    // A101-10: Envoy's limit.
    if gate && proto.sni.len() > MAX_SNI_LENGTH {
        at.field("sni").reject(format!("{} bytes, more than {MAX_SNI_LENGTH}", proto.sni.len()));
    }
    let at = at.field("common_tls_context");
    // A29-10: without it there is no validation context.
    let common = at.require(proto.common_tls_context.as_ref())?;
    // A29-27: ignoring these would weaken security. A29-16, A29-28: other fields are ignored.
    if common.tls_params.is_some() {
        at.field("tls_params").reject("is not supported");
    }
    if common.custom_handshaker.is_some() {
        at.field("custom_handshaker").reject("is not supported");
    }
    let identity = identity(&at, common);
    let validation = validation(&at, common);
    let (roots, match_subject_alt_names) = validation?;
    Some(UpstreamTls {
        roots: roots?,
        identity: identity?,
        match_subject_alt_names,
        // A101-11: behind the gate. A101-04: an empty name is not set.
        sni: Some(proto.sni.as_str()).filter(|sni| gate && !sni.is_empty()).map(Arc::from),
        auto_host_sni: gate && proto.auto_host_sni,
        auto_sni_san_validation: gate && proto.auto_sni_san_validation,
    })
}

/// A29-12: the provider instance of the client's certificate; `None` after a violation.
#[allow(deprecated)] // Istio and older control planes set the predecessor of the field
fn identity(at: &Field<'_>, proto: &wire::CommonTlsContext) -> Option<Option<Arc<str>>> {
    if let Some(instance) = &proto.tls_certificate_provider_instance {
        return instance_name(&at.field("tls_certificate_provider_instance"), &instance.instance_name)
            .map(Some);
    }
    if let Some(instance) = &proto.tls_certificate_certificate_provider_instance {
        let at = at.field("tls_certificate_certificate_provider_instance");
        return instance_name(&at, &instance.instance_name).map(Some);
    }
    // A29-15: no other source of the client's certificate is supported.
    let others = [
        ("tls_certificates", !proto.tls_certificates.is_empty()),
        ("tls_certificate_sds_secret_configs", !proto.tls_certificate_sds_secret_configs.is_empty()),
    ];
    let mut rejected = false;
    for (field, _) in others.into_iter().filter(|(_, set)| *set) {
        at.field(field).reject("is not supported; use tls_certificate_provider_instance");
        rejected = true;
    }
    (!rejected).then_some(None)
}

/// A29-10: the roots and SAN matchers of the validation context. The roots are `None` after a violation.
#[allow(deprecated)] // as in `identity`
fn validation(
    at: &Field<'_>,
    proto: &wire::CommonTlsContext,
) -> Option<(Option<RootCertificates>, Vec<StringMatcher>)> {
    let (outer, inner, at_inner);
    let (at, context, predecessor) = match &proto.validation_context_type {
        Some(ValidationContextType::ValidationContext(context)) => {
            inner = at.field("validation_context");
            (&inner, context, None)
        }
        Some(ValidationContextType::CombinedValidationContext(combined)) => {
            outer = at.field("combined_validation_context");
            at_inner = outer.field("default_validation_context");
            let context = at_inner.require(combined.default_validation_context.as_ref())?;
            let predecessor = combined.validation_context_certificate_provider_instance.as_ref();
            (&at_inner, context, predecessor.map(|instance| (&outer, instance)))
        }
        // A29-10: SDS is not supported.
        Some(ValidationContextType::ValidationContextSdsSecretConfig(_)) => {
            return at.field("validation_context_sds_secret_config").fail("is not supported");
        }
        // A29-10: the server's certificate must be validated.
        _ => return at.fail("must have validation_context or combined_validation_context"),
    };
    reject_unsupported(at, context);
    Some((roots(at, context, predecessor), san_matchers(at, context)))
}

fn roots(
    at: &Field<'_>,
    proto: &wire::CertificateValidationContext,
    predecessor: Option<(&Field<'_>, &CertificateProviderInstance)>,
) -> Option<RootCertificates> {
    if let Some(instance) = &proto.ca_certificate_provider_instance {
        let at = at.field("ca_certificate_provider_instance");
        return instance_name(&at, &instance.instance_name).map(RootCertificates::Instance);
    }
    if let Some((at, instance)) = predecessor {
        let at = at.field("validation_context_certificate_provider_instance");
        return instance_name(&at, &instance.instance_name).map(RootCertificates::Instance);
    }
    // A82-01, A82-06: behind the gate, and only without a provider instance.
    if at.context().gates.system_root_certs && proto.system_root_certs.is_some() {
        return Some(RootCertificates::System);
    }
    // A29-11: without roots nothing can be validated.
    at.field("ca_certificate_provider_instance").require(None)
}

/// A29-11, A29-14, A29-26: the instance must be configured in the bootstrap. A29-35: only its name counts.
fn instance_name(at: &Field<'_>, name: &str) -> Option<Arc<str>> {
    let known = at.context().certificate_providers.as_ref();
    if known.is_some_and(|known| known.contains(name)) {
        return Some(name.into());
    }
    at.field("instance_name").fail(format!("{name:?} is not a certificate provider of the bootstrap"))
}

/// A29-29: fields that must not be ignored, because that would weaken security. A29-30: others are ignored.
#[allow(deprecated)] // match_subject_alt_names, which A29 uses
fn reject_unsupported(at: &Field<'_>, proto: &wire::CertificateValidationContext) {
    let timestamps = proto.require_signed_certificate_timestamp.is_some_and(|value| value.value);
    for (field, set) in [
        ("verify_certificate_spki", !proto.verify_certificate_spki.is_empty()),
        ("verify_certificate_hash", !proto.verify_certificate_hash.is_empty()),
        ("require_signed_certificate_timestamp", timestamps),
        ("crl", proto.crl.is_some()),
        ("custom_validator_config", proto.custom_validator_config.is_some()),
    ] {
        if set {
            at.field(field).reject("is not supported");
        }
    }
    // A29-06: the typed list is newer than A29. With it alone no name would be checked at all.
    if !proto.match_typed_subject_alt_names.is_empty() && proto.match_subject_alt_names.is_empty() {
        at.field("match_typed_subject_alt_names").reject("is not supported; use match_subject_alt_names");
    }
}

/// A29-22: the matchers.
#[allow(deprecated)] // match_subject_alt_names, which A29 uses
fn san_matchers(at: &Field<'_>, proto: &wire::CertificateValidationContext) -> Vec<StringMatcher> {
    let at = at.field("match_subject_alt_names");
    let mut matchers = Vec::with_capacity(proto.match_subject_alt_names.len());
    for (i, proto) in proto.match_subject_alt_names.iter().enumerate() {
        let at = at.index(i);
        let Some(matcher) = string_matcher(&at, proto) else { continue };
        // The rule of the proto: an empty part would match every name.
        let empty = match &matcher.kind {
            StringMatchKind::Prefix(text) => text.is_empty().then_some("prefix"),
            StringMatchKind::Suffix(text) => text.is_empty().then_some("suffix"),
            StringMatchKind::Contains(text) => text.is_empty().then_some("contains"),
            StringMatchKind::Exact(_) | StringMatchKind::Regex(_) => None,
        };
        match empty {
            Some(field) => at.field(field).reject("must not be empty"),
            None => matchers.push(matcher),
        }
    }
    matchers
}
