//! Which servers are accepted, and how the errors read.

mod common;

use std::sync::Arc;

use common::{
    DAY, assert_failed, client, client_of, connect, files, refuse, server, shake, upstream, with_sans,
};
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf, ServerTls};
use proxyless_tls::{Check, HandshakeError, TlsSettings};
use proxyless_xds::bootstrap::{CertificateFiles, RootsFile};
use proxyless_xds::resource::{RootCertificates, StringMatchKind};

#[tokio::test]
async fn a29_17_a29_18_a101_04_without_matchers_every_name_is_accepted() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let server = Arc::new(server(&ca.issue(Leaf::new("backend").dns("backend.example"))));
    let (near, far) = connect(&client, &upstream(|_| {}), None, &server).await;
    assert_eq!(near.info.version, "TLSv1_3");
    assert_eq!(near.info.server_certificate.unwrap().subject, "CN=backend");
    // A101-04: nothing asks for a server name.
    assert_eq!(far.get_ref().1.server_name(), None);
}

#[tokio::test]
async fn tls_1_2_is_supported() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let server = ServerTls::new(&ca.issue(Leaf::new("backend"))).only_tls12().config();
    let (near, _far) = connect(&client, &upstream(|_| {}), None, &server).await;
    assert_eq!(near.info.version, "TLSv1_2");
}

#[tokio::test]
async fn a29_11_a87_02_a_server_of_another_authority_is_refused() {
    let (client, _folder) = client_of(&[&Authority::new("ca")]);
    let of = |name| Arc::new(server(&Authority::new(name).issue(Leaf::new("backend").dns("b.example"))));
    let error = refuse(&client, &upstream(|_| {}), None, &of("other")).await;
    let texts = [
        "no trusted root certificate has issued it",
        "wanted: a chain to one of 1 root certificates",
        "presented: subject \"CN=backend\", names [DNS \"b.example\"], valid from 20",
    ];
    assert_failed(&error, Check::Chain, &texts);
    // Another authority of the same name.
    let error = refuse(&client, &upstream(|_| {}), None, &of("ca")).await;
    assert_failed(&error, Check::Chain, &["is not that of the authority it names"]);
}

#[tokio::test]
async fn a29_33_all_roots_of_the_file_are_trusted() {
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    let (client, _folder) = client_of(&[&one, &two]);
    for ca in [one, two] {
        let server = Arc::new(server(&ca.issue(Leaf::new("backend"))));
        connect(&client, &upstream(|_| {}), None, &server).await;
    }
}

#[tokio::test]
async fn a29_11_expired_and_future_certificates_are_refused() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    for (from, until, why) in [(-2 * DAY, -DAY, "has expired"), (DAY, 2 * DAY, "is not valid yet")] {
        let server = Arc::new(server(&ca.issue(Leaf::new("backend").valid(from, until))));
        let error = refuse(&client, &upstream(|_| {}), None, &server).await;
        assert_failed(&error, Check::Chain, &[why, "valid from 20"]);
    }
}

#[tokio::test]
async fn a29_11_intermediates_lead_to_the_root() {
    let root = Authority::new("root");
    let middle = root.intermediate("middle").intermediate("lower");
    let (client, _folder) = client_of(&[&root]);
    let good = Arc::new(server(&middle.issue(Leaf::new("backend"))));
    connect(&client, &upstream(|_| {}), None, &good).await;
    let bad = Arc::new(server(&middle.issue(Leaf::new("backend").without_intermediates())));
    let error = refuse(&client, &upstream(|_| {}), None, &bad).await;
    assert_failed(&error, Check::Chain, &["no trusted root"]);
}

#[tokio::test]
async fn a29_17_a29_20_a29_22_names_are_matched() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let leaf = Leaf::new("backend")
        .dns("*.prod.example")
        .uri("spiffe://mesh.example/ns/prod/sa/api")
        .ip([127, 0, 0, 1])
        .email("me@mesh.example");
    let server = Arc::new(server(&ca.issue(leaf)));
    let exact = |text: &str| StringMatchKind::Exact(text.into());
    for good in [
        exact("api.prod.example"),
        exact("spiffe://mesh.example/ns/prod/sa/api"),
        exact("127.0.0.1"),
        exact("me@mesh.example"),
        StringMatchKind::Suffix("/sa/api".into()),
    ] {
        connect(&client, &with_sans(vec![exact("nobody"), good]), None, &server).await;
    }
    let bad = with_sans(vec![exact("prod.example"), StringMatchKind::Prefix("spiffe://other/".into())]);
    let error = refuse(&client, &bad, None, &server).await;
    let texts = [
        "none matches",
        "wanted: one of [exact \"prod.example\", prefix \"spiffe://other/\"]",
        "names [DNS \"*.prod.example\", URI \"spiffe://mesh.example/ns/prod/sa/api\", IP \"127.0.0.1\", email",
    ];
    assert_failed(&error, Check::Name, &texts);
}

#[tokio::test]
async fn a29_19_a_certificate_without_names_matches_nothing() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let server = Arc::new(server(&ca.issue(Leaf::new("a.example"))));
    let error =
        refuse(&client, &with_sans(vec![StringMatchKind::Exact("a.example".into())]), None, &server).await;
    assert_failed(&error, Check::Name, &["names []"]);
}

#[tokio::test]
async fn a101_05_to_a101_08_the_server_name_is_sent_and_checked() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let a = Arc::new(server(&ca.issue(Leaf::new("a").dns("a.example"))));
    let uri = Arc::new(server(&ca.issue(Leaf::new("a").uri("a.example"))));
    let plain = upstream(|_| {});
    let (_near, far) = connect(&client, &plain, Some("b.example"), &a).await;
    assert_eq!(far.get_ref().1.server_name(), Some("b.example"));
    // SAN matchers do not count beside the server name.
    let mut checked = with_sans(vec![StringMatchKind::Exact("z.example".into())]);
    if let TlsSettings::Upstream(tls) = &mut checked {
        Arc::get_mut(tls).unwrap().auto_sni_san_validation = true;
    }
    connect(&client, &checked, Some("a.example"), &a).await;
    let error = refuse(&client, &checked, Some("b.example"), &a).await;
    assert_failed(&error, Check::Name, &["the DNS name \"b.example\", which was sent as server name"]);
    let error = refuse(&client, &checked, Some("a.example"), &uri).await;
    assert_failed(&error, Check::Name, &["URI \"a.example\""]);
    // Without a server name they do.
    let error = refuse(&client, &checked, None, &a).await;
    assert_failed(&error, Check::Name, &["exact \"z.example\""]);
}

#[tokio::test]
async fn a101_03_an_invalid_server_name_is_an_error() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let server = Arc::new(server(&ca.issue(Leaf::new("a"))));
    let error = shake(&client, &upstream(|_| {}), Some("a b"), &server).await.0.unwrap_err();
    assert!(error.to_string().contains("\"a b\" is not a valid server name"), "{error}");
}

#[tokio::test]
async fn a87_03_to_a87_07_the_trust_domain_chooses_the_roots() {
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    let folder = CertificateFolder::new().unwrap();
    folder.write_bundle_map(&[("one.example", &one), ("two.example", &two)]).unwrap();
    let roots = Some(RootsFile::SpiffeBundleMap(folder.bundle_map_file()));
    let client = client(&[("certs", CertificateFiles { roots, ..Default::default() })]);
    let settings = upstream(|_| {});
    let of = |ca: &Authority, id: &str| Arc::new(server(&ca.issue(Leaf::new("backend").uri(id))));
    connect(&client, &settings, None, &of(&one, "spiffe://one.example/a")).await;
    connect(&client, &settings, None, &of(&two, "spiffe://two.example/b")).await;
    let error = refuse(&client, &settings, None, &of(&one, "spiffe://three.example/c")).await;
    let texts = ["\"three.example\" is not in the trust bundle map", "domains [one.example, two.example]"];
    assert_failed(&error, Check::TrustDomain, &texts);
    // The authority of another domain.
    let error = refuse(&client, &settings, None, &of(&two, "spiffe://one.example/a")).await;
    assert_failed(&error, Check::Chain, &["no trusted root"]);
    let server = Arc::new(server(&one.issue(Leaf::new("backend").dns("one.example"))));
    let error = refuse(&client, &settings, None, &server).await;
    assert_failed(&error, Check::TrustDomain, &["exactly one URI"]);
    // SAN matchers count as ever.
    let other = with_sans(vec![StringMatchKind::Exact("spiffe://one.example/z".into())]);
    let error = refuse(&client, &other, None, &of(&one, "spiffe://one.example/a")).await;
    assert_failed(&error, Check::Name, &["spiffe://one.example/z"]);
}

#[tokio::test]
async fn a65_01_a_management_server_must_have_its_host_name() {
    let ca = Authority::new("ca");
    let folder = CertificateFolder::new().unwrap();
    folder.write_ca(&[&ca]).unwrap();
    let (client, settings) = (client(&[]), TlsSettings::Server(files(&folder)));
    let server = Arc::new(server(&ca.issue(Leaf::new("xds").dns("xds.example").ip([127, 0, 0, 1]))));
    let (_near, far) = connect(&client, &settings, Some("xds.example"), &server).await;
    assert_eq!(far.get_ref().1.server_name(), Some("xds.example"));
    connect(&client, &settings, Some("127.0.0.1"), &server).await;
    let error = refuse(&client, &settings, Some("other.example"), &server).await;
    assert_failed(&error, Check::Name, &["wanted: other.example", "DNS \"xds.example\", IP \"127.0.0.1\""]);
    let error = shake(&client, &settings, None, &server).await.0.unwrap_err();
    assert!(matches!(error, HandshakeError::NoServerName), "{error}");
}

#[tokio::test]
async fn a_long_chain_is_refused() {
    let root = Authority::new("root");
    let (client, _folder) = client_of(&[&root]);
    let with_depth = |depth: usize| {
        let authority =
            (0..depth).fold(root.clone(), |authority, i| authority.intermediate(&format!("ca {i}")));
        Arc::new(server(&authority.issue(Leaf::new("backend"))))
    };
    let error = refuse(&client, &upstream(|_| {}), None, &with_depth(20)).await;
    assert_failed(&error, Check::Size, &["21 certificates"]);
    // rustls limits the size of a message.
    let error = shake(&client, &upstream(|_| {}), None, &with_depth(1000)).await.0.unwrap_err();
    assert!(matches!(error, HandshakeError::Tls(_)), "{error}");
}

#[tokio::test]
async fn providers_without_the_files_in_question_are_named() {
    let folder = CertificateFolder::new().unwrap();
    let ca = Authority::new("ca");
    folder.write_ca(&[&ca]).unwrap();
    folder.write_identity(&ca.issue(Leaf::new("me"))).unwrap();
    let only_identity = CertificateFiles { roots: None, ..common::mtls_files(&folder) };
    let client = client(&[("certs", files(&folder)), ("me", only_identity)]);
    let server = Arc::new(server(&ca.issue(Leaf::new("backend"))));
    for (settings, why) in [
        (
            upstream(|tls| tls.roots = RootCertificates::Instance("me".into())),
            "\"me\" has no root certificates",
        ),
        (upstream(|tls| tls.identity = Some("certs".into())), "\"certs\" has no certificate"),
        (upstream(|tls| tls.identity = Some("x".into())), "no certificate provider instance \"x\""),
    ] {
        let error = shake(&client, &settings, None, &server).await.0.unwrap_err().to_string();
        assert!(error.contains(why), "{error:?} should contain {why:?}");
    }
}
