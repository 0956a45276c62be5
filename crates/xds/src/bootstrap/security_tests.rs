//! Credentials and certificate providers.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::Gates;

/// A client that supports everything.
fn all() -> BootstrapOptions {
    let gates = Gates { bootstrap_call_creds: true, mtls_spiffe: true, ..Gates::default() };
    BootstrapOptions { gates, tls: true, google_default: true }
}

fn parse(json: &Value, options: &BootstrapOptions) -> Result<Bootstrap, BootstrapError> {
    Bootstrap::from_json_with(&json.to_string(), options)
}

fn creds(creds: Value) -> Value {
    json!({"xds_servers": [{"server_uri": "localhost:1234", "channel_creds": creds}]})
}

fn call(call: Value) -> Value {
    json!({"xds_servers": [{
        "server_uri": "localhost:1234", "channel_creds": [{"type": "tls"}], "call_creds": call,
    }]})
}

fn provider(config: Value) -> Value {
    let mut json = creds(json!([{"type": "insecure"}]));
    json["certificate_providers"] = json!({"p": {"plugin_name": "file_watcher", "config": config}});
    json
}

#[track_caller]
fn problems(json: &Value, expected: &[(&str, &str)]) {
    let error = parse(json, &all()).expect_err("the bootstrap should be invalid");
    let found: Vec<_> = error.problems().iter().map(|one| (one.path.as_str(), one.reason.as_str())).collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((path, why), (expected_path, expected_why)) in found.iter().zip(expected) {
        assert_eq!(path, expected_path, "{why}");
        assert!(why.contains(expected_why), "{why:?} should contain {expected_why:?}");
    }
}

fn files(json: &Value) -> CertificateFiles {
    match parse(json, &all()).expect("a valid bootstrap").certificate_providers()["p"].clone() {
        CertificateProvider::FileWatcher(files) => files,
        other => panic!("{other:?}"),
    }
}

fn identity() -> Option<IdentityFiles> {
    Some(IdentityFiles { certificate_file: "/cert".into(), private_key_file: "/key".into() })
}

#[test]
fn a65_01_a65_02_a65_03_a65_04_tls_credentials_are_read() {
    let json = creds(json!([{"type": "tls", "config": {
        "ca_certificate_file": "/ca", "certificate_file": "/cert", "private_key_file": "/key",
        "refresh_interval": "1.5s",
    }}]));
    let expected = CertificateFiles {
        identity: identity(),
        roots: Some(RootsFile::CaCertificates("/ca".into())),
        refresh_interval: Duration::from_millis(1500),
    };
    assert_eq!(parse(&json, &all()).unwrap().server().channel_creds, ChannelCreds::Tls(expected));
}

#[test]
fn a65_04_a65_05_every_field_of_tls_is_optional() {
    for config in [json!({}), Value::Null] {
        let json = creds(json!([{"type": "tls", "config": config}]));
        let found = parse(&json, &all()).unwrap().server().channel_creds.clone();
        assert_eq!(found, ChannelCreds::Tls(CertificateFiles::default()));
        assert_eq!(CertificateFiles::default().refresh_interval, Duration::from_secs(600));
    }
}

#[test]
fn a65_03_certificate_and_key_come_together() {
    let path = "xds_servers[0].channel_creds[0].config";
    problems(
        &creds(json!([{"type": "tls", "config": {"private_key_file": "/key"}}])),
        &[(&format!("{path}.certificate_file"), "must be set, because private_key_file is")],
    );
    problems(
        &creds(json!([{"type": "tls", "config": {"certificate_file": "/cert"}}])),
        &[(&format!("{path}.private_key_file"), "must be set, because certificate_file is")],
    );
}

#[test]
fn a65_01_every_problem_of_the_files_is_reported() {
    let json = creds(json!([{"type": "tls", "config": {
        "certificate_file": "", "private_key_file": 1, "ca_certificate_file": [], "refresh_interval": "1m",
    }}]));
    let path = "xds_servers[0].channel_creds[0].config";
    problems(
        &json,
        &[
            (&format!("{path}.certificate_file"), "is empty"),
            (&format!("{path}.private_key_file"), "must be a string"),
            (&format!("{path}.ca_certificate_file"), "must be a string"),
            (&format!("{path}.refresh_interval"), "\"1m\" is not a duration"),
        ],
    );
}

#[test]
fn a27_16_the_first_supported_credentials_win() {
    let found = |creds_json, options: &BootstrapOptions| {
        parse(&creds(creds_json), options).unwrap().server().channel_creds.clone()
    };
    let tls = ChannelCreds::Tls(CertificateFiles::default());
    let list = json!([{"type": "x"}, {"type": "google_default"}, {"type": "tls"}, {"type": "insecure"}]);
    assert_eq!(found(list.clone(), &all()), ChannelCreds::GoogleDefault);
    assert_eq!(found(list.clone(), &BootstrapOptions { google_default: false, ..all() }), tls);
    assert_eq!(found(list.clone(), &BootstrapOptions::default()), tls);
    let insecure = BootstrapOptions { tls: false, google_default: false, ..all() };
    assert_eq!(found(list, &insecure), ChannelCreds::Insecure);
    // Entries after it are not used, so that only their syntax counts.
    let broken = json!({"type": "tls", "config": {"certificate_file": "/cert"}});
    assert_eq!(found(json!([{"type": "insecure"}, broken]), &all()), ChannelCreds::Insecure);
    problems(&creds(json!([{"type": "x"}])), &[("xds_servers[0].channel_creds", "insecure, tls, google")]);
}

#[test]
fn a97_12_a97_13_a97_16_token_files_are_read_behind_their_gate() {
    let token = json!({"type": "jwt_token_file", "config": {"jwt_token_file": "/token"}});
    let json = call(json!([{"type": "x", "config": {"y": 1}}, token, {"type": "jwt_token_file",
        "config": {"jwt_token_file": "/other"}}]));
    let expected = ["/token", "/other"].map(|file| CallCreds::JwtTokenFile(file.into()));
    assert_eq!(parse(&json, &all()).unwrap().server().call_creds, expected);
    let closed = BootstrapOptions { gates: Gates::default(), ..all() };
    assert_eq!(parse(&json, &closed).unwrap().server().call_creds, []);
}

#[test]
fn a97_12_a97_13_call_creds_are_optional_and_have_their_own_types() {
    let mut json = call(json!([]));
    assert_eq!(parse(&json, &all()).unwrap().server().call_creds, []);
    json["xds_servers"][0].as_object_mut().unwrap().remove("call_creds");
    assert_eq!(parse(&json, &all()).unwrap().server().call_creds, []);
    // A type of channel_creds is not one of call_creds, nor the other way round.
    let tls = json!([{"type": "tls", "config": {"certificate_file": "/cert"}}]);
    assert_eq!(parse(&call(tls), &all()).unwrap().server().call_creds, []);
    let token = json!([{"type": "jwt_token_file", "config": {"jwt_token_file": "/token"}}]);
    problems(&creds(token), &[("xds_servers[0].channel_creds", "jwt_token_file")]);
    problems(&call(json!([{"config": {}}])), &[("xds_servers[0].call_creds[0].type", "is missing")]);
}

#[test]
fn a97_14_a97_15_a_token_file_needs_a_path() {
    let path = "xds_servers[0].call_creds[0].config.jwt_token_file";
    problems(&call(json!([{"type": "jwt_token_file"}])), &[(path, "is missing")]);
    problems(&call(json!([{"type": "jwt_token_file", "config": {}}])), &[(path, "is missing")]);
    let empty = json!([{"type": "jwt_token_file", "config": {"jwt_token_file": ""}}]);
    problems(&call(empty.clone()), &[(path, "is empty")]);
    let closed = BootstrapOptions { gates: Gates::default(), ..all() };
    parse(&call(empty), &closed).expect("behind the gate the config is not read");
}

#[test]
fn a29_31_a29_33_file_watchers_are_read() {
    let json = provider(json!({"certificate_file": "/cert", "private_key_file": "/key", "future": 1}));
    assert_eq!(files(&json), CertificateFiles { identity: identity(), ..Default::default() });
    let json = provider(json!({"ca_certificate_file": "/ca", "refresh_interval": "0.000000001s"}));
    let expected = CertificateFiles {
        identity: None,
        roots: Some(RootsFile::CaCertificates("/ca".into())),
        refresh_interval: Duration::from_nanos(1),
    };
    assert_eq!(files(&json), expected);
}

#[test]
fn a29_33_a65_05_a_file_watcher_needs_a_file() {
    let path = "certificate_providers[\"p\"].config";
    problems(&provider(json!({})), &[(path, "certificate_file or ca_certificate_file")]);
    problems(&provider(Value::Null), &[(path, "certificate_file or ca_certificate_file")]);
    problems(&provider(json!([])), &[(path, "must be an object")]);
    problems(
        &provider(json!({"private_key_file": "/key"})),
        &[(&format!("{path}.certificate_file"), "must be set")],
    );
}

#[test]
fn a29_34_intervals_are_proto_json() {
    let path = "certificate_providers[\"p\"].config.refresh_interval";
    for bad in ["", "s", "1", "-1s", "1.s", ".5s", "1.0000000001s", "1e3s", " 1s", "315576000001s", "1,5s"] {
        let json = provider(json!({"ca_certificate_file": "/ca", "refresh_interval": bad}));
        problems(&json, &[(path, "is not a duration")]);
    }
    let json = provider(json!({"ca_certificate_file": "/ca", "refresh_interval": 5}));
    problems(&json, &[(path, "must be a string")]);
    for (good, nanos) in [("0s", 0), ("1s", 1_000_000_000), ("0.1s", 100_000_000), ("1.000s", 1_000_000_000)]
    {
        let json = provider(json!({"ca_certificate_file": "/ca", "refresh_interval": good}));
        assert_eq!(files(&json).refresh_interval, Duration::from_nanos(nanos));
    }
}

#[test]
fn a87_08_a87_09_a87_16_the_trust_bundle_map_replaces_the_ca_certificates() {
    let config = json!({"ca_certificate_file": "/ca", "spiffe_trust_bundle_map_file": "/map"});
    assert_eq!(files(&provider(config.clone())).roots, Some(RootsFile::SpiffeBundleMap("/map".into())));
    let closed = BootstrapOptions { gates: Gates::default(), ..all() };
    let bootstrap = parse(&provider(config), &closed).unwrap();
    let roots = Some(RootsFile::CaCertificates("/ca".into()));
    let expected = CertificateFiles { roots, ..Default::default() };
    assert_eq!(bootstrap.certificate_providers()["p"], CertificateProvider::FileWatcher(expected));
    let alone = provider(json!({"spiffe_trust_bundle_map_file": "/map"}));
    files(&alone);
    parse(&alone, &closed).expect_err("behind the gate there is no file");
}

#[test]
fn a29_26_a29_31_an_unknown_plugin_cannot_be_referred_to() {
    let mut json = provider(json!({"ca_certificate_file": "/ca"}));
    json["certificate_providers"]["q"] = json!({"plugin_name": "other", "config": {"anything": 1}});
    let bootstrap = parse(&json, &all()).unwrap();
    let unsupported = CertificateProvider::Unsupported { plugin_name: "other".into() };
    assert_eq!(bootstrap.certificate_providers()["q"], unsupported);
    assert_eq!(bootstrap.certificate_provider_names(), ["p".to_owned()].into());
}

#[test]
fn builder_makes_credentials_and_providers() {
    let tls = ChannelCreds::Tls(CertificateFiles { identity: identity(), ..Default::default() });
    let token = CallCreds::JwtTokenFile("/token".into());
    let files = CertificateFiles {
        roots: Some(RootsFile::CaCertificates("/ca".into())),
        ..CertificateFiles::default()
    };
    let built = Bootstrap::builder()
        .server_with_creds("localhost:1234", tls.clone(), vec![token.clone()], ServerFeatures::default())
        .certificate_provider("p", files.clone())
        .build()
        .unwrap();
    let server = built.server();
    assert_eq!((&server.channel_creds, &server.call_creds[..]), (&tls, &[token][..]));
    assert_eq!(built.certificate_providers()["p"], CertificateProvider::FileWatcher(files));
}
