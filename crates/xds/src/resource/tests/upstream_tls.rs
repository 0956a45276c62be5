//! TLS settings of a Cluster (gRFC A29, A82, A101).
#![allow(deprecated)] // A29 uses fields that Envoy has replaced since

use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::config::core::v3::{DataSource, TransportSocket, TypedExtensionConfig};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as wire;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher as WireMatcher};
use envoy_types::pb::google::protobuf::{Any, BoolValue};
use wire::certificate_validation_context::SystemRootCerts;
use wire::common_tls_context::{
    CertificateProviderInstance, CombinedCertificateValidationContext, ValidationContextType,
};

use super::builders::{any, any_of_type, eds_cluster};
use super::{as_cluster, decode_message_with, rejects_with};
use crate::resource::{DecodeContext, RootCertificates, StringMatchKind, UpstreamTls};

const CONFIG: &str = "transport_socket.typed_config";
const COMMON: &str = "transport_socket.typed_config.common_tls_context";
const VALIDATION: &str = "transport_socket.typed_config.common_tls_context.validation_context";

/// A client with the provider instances `certs` and `roots`, and every gate of TLS open.
fn cx() -> DecodeContext {
    let providers = ["certs", "roots"].map(str::to_owned);
    let mut cx =
        DecodeContext { certificate_providers: Some(Arc::new(providers.into())), ..Default::default() };
    cx.gates.sni = true;
    cx.gates.system_root_certs = true;
    cx
}

fn instance(name: &str) -> wire::CertificateProviderPluginInstance {
    wire::CertificateProviderPluginInstance { instance_name: name.into(), certificate_name: String::new() }
}

fn old_instance(name: &str) -> CertificateProviderInstance {
    CertificateProviderInstance { instance_name: name.into(), certificate_name: "ROOTCA".into() }
}

fn roots() -> wire::CertificateValidationContext {
    wire::CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance("certs")),
        ..Default::default()
    }
}

fn common(validation: wire::CertificateValidationContext) -> wire::CommonTlsContext {
    wire::CommonTlsContext {
        validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
        ..Default::default()
    }
}

fn combined(combined: CombinedCertificateValidationContext) -> wire::CommonTlsContext {
    wire::CommonTlsContext {
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(combined)),
        ..Default::default()
    }
}

fn upstream(common: wire::CommonTlsContext) -> wire::UpstreamTlsContext {
    wire::UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() }
}

fn socket(config: Option<Any>) -> Cluster {
    let socket = TransportSocket { name: "any".into(), config_type: config.map(ConfigType::TypedConfig) };
    Cluster { transport_socket: Some(socket), ..eds_cluster() }
}

fn cluster(tls: &wire::UpstreamTlsContext) -> Cluster {
    socket(Some(any(tls)))
}

fn accept_with(tls: &wire::UpstreamTlsContext, cx: &DecodeContext) -> UpstreamTls {
    let cluster = as_cluster(decode_message_with(&cluster(tls), cx).expect("a valid cluster"));
    cluster.tls.as_deref().expect("TLS settings").clone()
}

fn accept(tls: &wire::UpstreamTlsContext) -> UpstreamTls {
    accept_with(tls, &cx())
}

#[track_caller]
fn reject(tls: &wire::UpstreamTlsContext, path: &str, why: &str) {
    rejects_with(&cluster(tls), &cx(), path, why);
}

fn san(pattern: MatchPattern) -> WireMatcher {
    WireMatcher { match_pattern: Some(pattern), ignore_case: false }
}

fn minimal() -> UpstreamTls {
    UpstreamTls {
        roots: RootCertificates::Instance("certs".into()),
        identity: None,
        match_subject_alt_names: vec![],
        sni: None,
        auto_host_sni: false,
        auto_sni_san_validation: false,
    }
}

#[test]
fn a29_07_without_a_transport_socket_there_are_no_settings() {
    let cluster = as_cluster(decode_message_with(&eds_cluster(), &cx()).expect("a valid cluster"));
    assert_eq!(cluster.tls, None);
}

#[test]
fn a29_10_a29_11_roots_come_from_a_validation_context() {
    assert_eq!(accept(&upstream(common(roots()))), minimal());
}

#[test]
fn a29_10_a29_11_roots_come_from_a_combined_validation_context() {
    let context = CombinedCertificateValidationContext {
        default_validation_context: Some(roots()),
        // A29-10: only the default counts.
        validation_context_sds_secret_config: Some(Default::default()),
        ..Default::default()
    };
    assert_eq!(accept(&upstream(combined(context))), minimal());
}

#[test]
fn a29_12_a29_15_the_identity_comes_from_a_provider_instance() {
    let mut context = common(roots());
    context.tls_certificate_provider_instance = Some(instance("roots"));
    // A29-15: other sources are an error only without an instance.
    context.tls_certificates.push(Default::default());
    assert_eq!(accept(&upstream(context)), UpstreamTls { identity: Some("roots".into()), ..minimal() });
}

#[test]
fn a29_26_the_predecessors_of_the_instance_fields_count_where_they_are_alone() {
    let mut context = combined(CombinedCertificateValidationContext {
        default_validation_context: Some(Default::default()),
        validation_context_certificate_provider_instance: Some(old_instance("certs")),
        ..Default::default()
    });
    context.tls_certificate_certificate_provider_instance = Some(old_instance("roots"));
    let expected = UpstreamTls { identity: Some("roots".into()), ..minimal() };
    assert_eq!(accept(&upstream(context.clone())), expected);
    context.tls_certificate_provider_instance = Some(instance("certs"));
    assert_eq!(accept(&upstream(context)).identity.as_deref(), Some("certs"));
    let mut context = combined(CombinedCertificateValidationContext {
        default_validation_context: Some(roots()),
        validation_context_certificate_provider_instance: Some(old_instance("stranger")),
        ..Default::default()
    });
    assert_eq!(accept(&upstream(context.clone())), minimal());
    context.tls_certificate_certificate_provider_instance = Some(old_instance("stranger"));
    let path = format!("{COMMON}.tls_certificate_certificate_provider_instance.instance_name");
    reject(&upstream(context), &path, "\"stranger\" is not a certificate provider");
}

#[test]
fn a29_07_other_transport_sockets_are_rejected() {
    rejects_with(&socket(None), &cx(), CONFIG, "must be set");
    let other = any_of_type("envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer", b"");
    rejects_with(&socket(Some(other)), &cx(), CONFIG, "RawBuffer is not supported");
    let bad = any_of_type("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", b"\xff");
    rejects_with(&socket(Some(bad)), &cx(), CONFIG, "does not decode");
}

#[test]
fn a29_08_transport_socket_matches_are_rejected() {
    let mut cluster = cluster(&upstream(common(roots())));
    cluster.transport_socket_matches.push(Default::default());
    rejects_with(&cluster, &cx(), "transport_socket_matches", "is not supported");
    cluster.transport_socket = None;
    rejects_with(&cluster, &cx(), "transport_socket_matches", "is not supported");
}

#[test]
fn a29_35_the_name_of_the_certificate_is_ignored() {
    let named =
        wire::CertificateProviderPluginInstance { certificate_name: "any".into(), ..instance("certs") };
    let validation = wire::CertificateValidationContext {
        ca_certificate_provider_instance: Some(named.clone()),
        ..Default::default()
    };
    let mut context = common(validation);
    context.tls_certificate_provider_instance = Some(named);
    assert_eq!(accept(&upstream(context)), UpstreamTls { identity: Some("certs".into()), ..minimal() });
}

#[test]
fn a29_03_a_client_without_tls_rejects_the_settings() {
    let cluster = cluster(&upstream(common(roots())));
    let cx = DecodeContext::default();
    rejects_with(&cluster, &cx, "transport_socket", "not supported by this client");
}

#[test]
fn a29_10_a_validation_context_is_required() {
    reject(&Default::default(), COMMON, "must be set");
    reject(&upstream(Default::default()), COMMON, "must have validation_context");
    let empty = combined(Default::default());
    reject(
        &upstream(empty),
        &format!("{COMMON}.combined_validation_context.default_validation_context"),
        "must be set",
    );
    let alone = wire::CommonTlsContext {
        validation_context_type: Some(ValidationContextType::ValidationContextCertificateProviderInstance(
            old_instance("certs"),
        )),
        ..Default::default()
    };
    reject(&upstream(alone), COMMON, "must have validation_context");
}

#[test]
fn a29_10_sds_is_rejected() {
    let sds = ValidationContextType::ValidationContextSdsSecretConfig(Default::default());
    let context = wire::CommonTlsContext { validation_context_type: Some(sds), ..Default::default() };
    reject(&upstream(context), &format!("{COMMON}.validation_context_sds_secret_config"), "not supported");
}

#[test]
fn a29_11_roots_are_required() {
    let path = format!("{VALIDATION}.ca_certificate_provider_instance");
    reject(&upstream(common(Default::default())), &path, "must be set");
}

#[test]
fn a29_11_a29_14_instances_must_be_in_the_bootstrap() {
    let stranger = wire::CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance("stranger")),
        ..Default::default()
    };
    let path = format!("{VALIDATION}.ca_certificate_provider_instance.instance_name");
    reject(&upstream(common(stranger)), &path, "\"stranger\" is not a certificate provider of the bootstrap");
    let mut context = common(roots());
    context.tls_certificate_provider_instance = Some(instance("stranger"));
    let path = format!("{COMMON}.tls_certificate_provider_instance.instance_name");
    reject(&upstream(context), &path, "\"stranger\" is not a certificate provider of the bootstrap");
}

#[test]
fn a29_15_other_sources_of_the_identity_are_rejected() {
    let mut context = common(roots());
    context.tls_certificates.push(Default::default());
    reject(&upstream(context), &format!("{COMMON}.tls_certificates"), "is not supported");
    let mut context = common(roots());
    context.tls_certificate_sds_secret_configs.push(Default::default());
    reject(&upstream(context), &format!("{COMMON}.tls_certificate_sds_secret_configs"), "is not supported");
}

#[test]
fn a29_06_a29_27_a29_29_fields_that_would_weaken_security_are_rejected() {
    type Change = fn(&mut wire::CertificateValidationContext);
    let changes: [(&str, Change); 5] = [
        ("verify_certificate_spki", |context| context.verify_certificate_spki.push("x".into())),
        ("verify_certificate_hash", |context| context.verify_certificate_hash.push("x".into())),
        ("require_signed_certificate_timestamp", |context| {
            context.require_signed_certificate_timestamp = Some(BoolValue { value: true });
        }),
        ("crl", |context| context.crl = Some(DataSource::default())),
        ("custom_validator_config", |context| {
            context.custom_validator_config = Some(TypedExtensionConfig::default());
        }),
    ];
    for (field, change) in changes {
        let mut validation = roots();
        change(&mut validation);
        reject(&upstream(common(validation.clone())), &format!("{VALIDATION}.{field}"), "is not supported");
        let context = CombinedCertificateValidationContext {
            default_validation_context: Some(validation),
            ..Default::default()
        };
        let path = format!("{COMMON}.combined_validation_context.default_validation_context.{field}");
        reject(&upstream(combined(context)), &path, "is not supported");
    }
    let mut context = common(roots());
    context.tls_params = Some(Default::default());
    reject(&upstream(context), &format!("{COMMON}.tls_params"), "is not supported");
    let mut context = common(roots());
    context.custom_handshaker = Some(Default::default());
    reject(&upstream(context), &format!("{COMMON}.custom_handshaker"), "is not supported");
}

#[test]
fn a29_06_a29_16_a29_28_a29_30_other_fields_are_ignored() {
    let mut validation = roots();
    validation.trusted_ca = Some(DataSource::default());
    validation.watched_directory = Some(Default::default());
    validation.allow_expired_certificate = true;
    validation.trust_chain_verification = 1;
    validation.require_signed_certificate_timestamp = Some(BoolValue { value: false });
    let mut context = common(validation);
    context.alpn_protocols.push("http/1.1".into());
    let mut tls = upstream(context);
    tls.allow_renegotiation = true;
    tls.max_session_keys = Some(Default::default());
    assert_eq!(accept(&tls), minimal());
}

#[test]
fn a29_05_every_violation_is_reported() {
    let mut validation = wire::CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance("a")),
        crl: Some(DataSource::default()),
        ..Default::default()
    };
    validation.match_subject_alt_names.push(WireMatcher::default());
    let mut context = common(validation);
    context.tls_params = Some(Default::default());
    context.tls_certificate_provider_instance = Some(instance("b"));
    let found = decode_message_with(&cluster(&upstream(context)), &cx()).expect_err("violations");
    let paths: Vec<_> = found.iter().map(|(path, _)| path.strip_prefix(COMMON).expect("a prefix")).collect();
    assert_eq!(
        paths,
        [
            ".tls_params",
            ".tls_certificate_provider_instance.instance_name",
            ".validation_context.crl",
            ".validation_context.ca_certificate_provider_instance.instance_name",
            ".validation_context.match_subject_alt_names[0]",
        ]
    );
}

fn with_sans(sans: Vec<WireMatcher>) -> wire::UpstreamTlsContext {
    upstream(common(wire::CertificateValidationContext { match_subject_alt_names: sans, ..roots() }))
}

#[test]
fn a29_22_san_matchers_are_read() {
    let regex = RegexMatcher { regex: "a|b".into(), ..Default::default() };
    let sans = vec![
        WireMatcher { ignore_case: true, ..san(MatchPattern::Exact("A".into())) },
        san(MatchPattern::SafeRegex(regex)),
    ];
    let found = accept(&with_sans(sans.clone())).match_subject_alt_names;
    let texts: Vec<_> = found.iter().map(|one| (one.kind.text(), one.ignore_case)).collect();
    assert_eq!(texts, [("A", true), ("^(?:a|b)$", false)]);
    assert!(matches!(found[1].kind, StringMatchKind::Regex(_)));
    // The settings are part of a key: equal messages are equal, and hash alike.
    let (a, b) = (accept(&with_sans(sans.clone())), accept(&with_sans(sans[..1].to_vec())));
    assert_eq!(hash(&a), hash(&accept(&with_sans(sans))));
    assert_ne!(a, b);
    assert_ne!(hash(&a), hash(&b));
}

fn hash(tls: &UpstreamTls) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    tls.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn a29_22_bad_san_matchers_are_rejected() {
    let path = format!("{VALIDATION}.match_subject_alt_names[1]");
    let reject_san = |bad, field: &str, why: &str| {
        let sans = vec![san(MatchPattern::Exact("a".into())), bad];
        reject(&with_sans(sans), &format!("{path}{field}"), why);
    };
    reject_san(WireMatcher::default(), "", "must have exact");
    let regex = |regex: &str| {
        let regex = RegexMatcher { regex: regex.into(), ..Default::default() };
        san(MatchPattern::SafeRegex(regex))
    };
    reject_san(regex("("), ".safe_regex.regex", "is not a valid regex");
    // A regex that explodes.
    reject_san(regex(r"((\w{100}){100}){100}"), ".safe_regex.regex", "more than 1048576 bytes");
    for (pattern, field) in [
        (MatchPattern::Prefix(String::new()), ".prefix"),
        (MatchPattern::Suffix(String::new()), ".suffix"),
        (MatchPattern::Contains(String::new()), ".contains"),
    ] {
        reject_san(san(pattern), field, "must not be empty");
    }
}

#[test]
fn a29_06_typed_san_matchers_alone_are_rejected() {
    let mut validation = roots();
    validation.match_typed_subject_alt_names.push(Default::default());
    let path = format!("{VALIDATION}.match_typed_subject_alt_names");
    reject(&upstream(common(validation.clone())), &path, "use match_subject_alt_names");
    validation.match_subject_alt_names.push(san(MatchPattern::Exact("a".into())));
    assert_eq!(accept(&upstream(common(validation))).match_subject_alt_names.len(), 1);
}

#[test]
fn a82_01_a82_02_a82_06_system_roots_count_without_a_provider_instance() {
    let system = wire::CertificateValidationContext {
        system_root_certs: Some(SystemRootCerts {}),
        ..Default::default()
    };
    assert_eq!(accept(&upstream(common(system.clone()))).roots, RootCertificates::System);
    let both = wire::CertificateValidationContext { system_root_certs: Some(SystemRootCerts {}), ..roots() };
    assert_eq!(accept(&upstream(common(both))).roots, RootCertificates::Instance("certs".into()));
    let mut closed = cx();
    closed.gates.system_root_certs = false;
    let path = format!("{VALIDATION}.ca_certificate_provider_instance");
    rejects_with(&cluster(&upstream(common(system))), &closed, &path, "must be set");
}

#[test]
fn a101_03_a101_11_sni_is_read_behind_its_gate() {
    let tls = wire::UpstreamTlsContext {
        sni: "a.example".into(),
        auto_host_sni: true,
        auto_sni_san_validation: true,
        ..upstream(common(roots()))
    };
    let expected = UpstreamTls {
        sni: Some("a.example".into()),
        auto_host_sni: true,
        auto_sni_san_validation: true,
        ..minimal()
    };
    assert_eq!(accept(&tls), expected);
    let mut closed = cx();
    closed.gates.sni = false;
    assert_eq!(accept_with(&tls, &closed), minimal());
}

#[test]
fn a101_10_a_long_sni_is_rejected() {
    let tls = |length| wire::UpstreamTlsContext { sni: "a".repeat(length), ..upstream(common(roots())) };
    assert_eq!(accept(&tls(255)).sni.map(|sni| sni.len()), Some(255));
    reject(&tls(256), &format!("{CONFIG}.sni"), "256 bytes, more than 255");
    let mut closed = cx();
    closed.gates.sni = false;
    assert_eq!(accept_with(&tls(256), &closed), minimal());
}

#[test]
fn a101_04_an_empty_sni_is_none() {
    let tls = wire::UpstreamTlsContext { sni: String::new(), ..upstream(common(roots())) };
    assert_eq!(accept(&tls).sni, None);
}

#[test]
fn the_lists_of_tls_settings_count_as_elements_of_the_cluster() {
    let sans = vec![WireMatcher::default(); 10_001];
    let found = decode_message_with(&cluster(&with_sans(sans)), &cx()).expect_err("too many");
    assert_eq!(found, [(String::new(), "more than 10000 elements, the limit".to_owned())]);
}
