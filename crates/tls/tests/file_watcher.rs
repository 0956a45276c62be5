//! Certificate files: good, bad, and changing.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Clock, DAY, identity_files, mtls_files};
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
use proxyless_tls::{FileError, FileWatcher, Trust, crypto_provider};
use proxyless_xds::bootstrap::{CertificateFiles, RootsFile};

fn watch(files: CertificateFiles) -> Arc<FileWatcher> {
    FileWatcher::new(files, crypto_provider().unwrap(), Clock::start())
}

/// A folder with good files.
fn folder(ca: &Authority) -> CertificateFolder {
    let folder = CertificateFolder::new().unwrap();
    folder.write_ca(&[ca]).unwrap();
    folder.write_identity(&ca.issue(Leaf::new("first"))).unwrap();
    folder
}

async fn next_read(watcher: &FileWatcher) {
    // One read may have begun before the files were changed.
    watcher.wait_for_reads(watcher.reads() + 2).await;
}

async fn subject(watcher: &FileWatcher) -> String {
    watcher.identity().await.unwrap().unwrap().certificate().subject.clone()
}

#[track_caller]
fn assert_problem(problem: &FileError, file: &Path, why: &str) {
    assert_eq!(problem.file, file, "{problem}");
    assert!(problem.why.contains(why), "{problem} should contain {why:?}");
}

#[tokio::test]
async fn a29_33_files_are_read() {
    let ca = Authority::new("ca");
    let folder = folder(&ca);
    let watcher = watch(mtls_files(&folder));
    assert_eq!(subject(&watcher).await, "CN=first");
    assert!(matches!(&*watcher.trust().await.unwrap().unwrap(), Trust::Roots(roots) if roots.len() == 1));
    assert_eq!(watcher.problems(), []);
    let nothing = watch(CertificateFiles::default());
    assert!(nothing.identity().await.unwrap().is_none());
    assert!(nothing.trust().await.unwrap().is_none());
}

#[tokio::test]
async fn bad_root_files_are_named_with_the_reason() {
    let ca = Authority::new("ca");
    let pem = ca.pem();
    let certificate =
        |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
    let huge = "x".repeat((4 << 20) + 1);
    for (content, why) in [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("rubbish", "has no certificates in PEM"),
        (&pem[..pem.len() - 30], "is not valid PEM"),
        (&certificate("!!!!"), "is not valid PEM"),
        (&certificate("AAAA"), "certificate 1 is not an X.509 certificate"),
        (&format!("{pem}{}", certificate("AAAA")), "certificate 2 is not an X.509 certificate"),
        (&ca.issue(Leaf::new("x")).key_pem(), "has no certificates in PEM"),
        (&huge, "has more than 4194304 bytes"),
    ] {
        let folder = folder(&ca);
        folder.write(&folder.ca_file(), content).unwrap();
        let problem = watch(mtls_files(&folder)).trust().await.unwrap_err();
        assert_problem(&problem, &folder.ca_file(), why);
    }
    let folder = folder(&ca);
    fs::remove_file(folder.ca_file()).unwrap();
    let problem = watch(mtls_files(&folder)).trust().await.unwrap_err();
    assert_problem(&problem, &folder.ca_file(), "cannot be read");
    fs::create_dir(folder.ca_file()).unwrap();
    let problem = watch(mtls_files(&folder)).trust().await.unwrap_err();
    assert_problem(&problem, &folder.ca_file(), "is not a regular file");
}

#[tokio::test]
async fn expired_roots_are_an_error_if_no_other_is_valid() {
    let ca = Authority::new("ca");
    let folder = folder(&ca);
    let old = ca.issue(Leaf::new("old").valid(-2 * DAY, -DAY)).chain_pem();
    folder.write(&folder.ca_file(), &format!("{old}{}", ca.pem())).unwrap();
    watch(mtls_files(&folder)).trust().await.unwrap().unwrap();
    folder.write(&folder.ca_file(), &old).unwrap();
    let problem = watch(mtls_files(&folder)).trust().await.unwrap_err();
    assert_problem(&problem, &folder.ca_file(), "has no certificate that is valid now");
}

#[tokio::test]
async fn bad_identities_are_named_with_the_reason() {
    let ca = Authority::new("ca");
    let issue = |leaf: Leaf| ca.issue(leaf);
    let (good, other) = (issue(Leaf::new("good")), issue(Leaf::new("other")));
    let expired = issue(Leaf::new("expired").valid(-2 * DAY, -DAY));
    let future = issue(Leaf::new("future").valid(DAY, 2 * DAY));
    let key = good.key_pem();
    for (chain, key, in_key, why) in [
        ("rubbish", &*key, false, "has no certificate in PEM"),
        (&good.key_pem(), &key, false, "has no certificate in PEM"),
        (&expired.chain_pem(), &expired.key_pem(), false, "the certificate has expired at 20"),
        (&future.chain_pem(), &future.key_pem(), false, "the certificate is not valid before 20"),
        (&good.chain_pem(), &other.key_pem(), true, "is not the key of the certificate in"),
        (&good.chain_pem(), "rubbish", true, "has no private key in PEM"),
        (&good.chain_pem(), &good.chain_pem(), true, "has no private key in PEM"),
        (&good.chain_pem(), &key[..key.len() - 30], true, "is not valid PEM"),
        (
            &good.chain_pem(),
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            true,
            "cannot be used",
        ),
    ] {
        let folder = folder(&ca);
        folder.write(&folder.certificate_file(), chain).unwrap();
        folder.write(&folder.private_key_file(), key).unwrap();
        let file = if in_key { folder.private_key_file() } else { folder.certificate_file() };
        let problem = watch(mtls_files(&folder)).identity().await.unwrap_err();
        assert_problem(&problem, &file, why);
    }
    let folder = folder(&ca);
    fs::remove_file(folder.private_key_file()).unwrap();
    let problem = watch(mtls_files(&folder)).identity().await.unwrap_err();
    assert_problem(&problem, &folder.private_key_file(), "cannot be read");
}

#[tokio::test]
async fn a87_10_a_bad_trust_bundle_map_is_named_with_the_reason() {
    let folder = CertificateFolder::new().unwrap();
    let roots = Some(RootsFile::SpiffeBundleMap(folder.bundle_map_file()));
    let files = CertificateFiles { roots, ..Default::default() };
    folder.write(&folder.bundle_map_file(), "{}").unwrap();
    let problem = watch(files.clone()).trust().await.unwrap_err();
    assert_problem(&problem, &folder.bundle_map_file(), "trust_domains: must be an object");
    folder.write_bundle_map(&[]).unwrap();
    let trust = watch(files).trust().await.unwrap().unwrap();
    assert!(matches!(&*trust, Trust::Spiffe(_)), "{trust:?}");
}

#[tokio::test(start_paused = true)]
async fn a29_37_certificate_and_key_are_used_as_a_pair_only() {
    let ca = Authority::new("ca");
    let folder = folder(&ca);
    let watcher = watch(mtls_files(&folder));
    assert_eq!(subject(&watcher).await, "CN=first");
    let second = ca.issue(Leaf::new("second"));
    folder.write(&folder.certificate_file(), &second.chain_pem()).unwrap();
    next_read(&watcher).await;
    assert_eq!(subject(&watcher).await, "CN=first");
    let [problem] = &watcher.problems()[..] else { panic!() };
    assert_problem(problem, &folder.private_key_file(), "is not the key of the certificate");
    folder.write(&folder.private_key_file(), &second.key_pem()).unwrap();
    next_read(&watcher).await;
    assert_eq!(subject(&watcher).await, "CN=second");
    assert_eq!(watcher.problems(), []);
}

#[tokio::test(start_paused = true)]
async fn a_bad_file_leaves_the_old_content_in_use() {
    let ca = Authority::new("ca");
    let folder = folder(&ca);
    let watcher = watch(mtls_files(&folder));
    let trust = watcher.trust().await.unwrap().unwrap();
    let good = fs::read_to_string(folder.ca_file()).unwrap();
    for bad in ["", "rubbish", &good[..good.len() - 30]] {
        folder.write(&folder.ca_file(), bad).unwrap();
        next_read(&watcher).await;
        assert!(Arc::ptr_eq(&watcher.trust().await.unwrap().unwrap(), &trust));
        assert_eq!(watcher.problems().len(), 1);
    }
    fs::remove_file(folder.ca_file()).unwrap();
    next_read(&watcher).await;
    assert!(Arc::ptr_eq(&watcher.trust().await.unwrap().unwrap(), &trust));
    // The same content again is the same version: nothing that was made of it is made again.
    folder.write(&folder.ca_file(), &good).unwrap();
    next_read(&watcher).await;
    assert!(Arc::ptr_eq(&watcher.trust().await.unwrap().unwrap(), &trust));
    assert_eq!(watcher.problems(), []);
}

#[tokio::test(start_paused = true)]
async fn a87_11_a_bad_trust_bundle_map_leaves_the_old_one_in_use() {
    let folder = CertificateFolder::new().unwrap();
    folder.write_bundle_map(&[("one.example", &Authority::new("one"))]).unwrap();
    let roots = Some(RootsFile::SpiffeBundleMap(folder.bundle_map_file()));
    let refresh_interval = Duration::from_secs(1);
    let watcher = watch(CertificateFiles { roots, refresh_interval, ..Default::default() });
    let trust = watcher.trust().await.unwrap().unwrap();
    for bad in ["", "{", "{\"trust_domains\": {\"one.example\": {\"keys\": [1]}}}"] {
        folder.write(&folder.bundle_map_file(), bad).unwrap();
        next_read(&watcher).await;
        assert!(Arc::ptr_eq(&watcher.trust().await.unwrap().unwrap(), &trust));
        assert_eq!(watcher.problems().len(), 1);
    }
    // A87-12: an empty map is a good one.
    folder.write_bundle_map(&[]).unwrap();
    next_read(&watcher).await;
    assert!(!Arc::ptr_eq(&watcher.trust().await.unwrap().unwrap(), &trust));
    assert_eq!(watcher.problems(), []);
}

/// Every way in which an identity can be bad; the old one stays.
#[tokio::test(start_paused = true)]
async fn a29_37_a_bad_identity_leaves_the_old_one_in_use() {
    let ca = Authority::new("ca");
    let folder = folder(&ca);
    let watcher = watch(mtls_files(&folder));
    assert_eq!(subject(&watcher).await, "CN=first");
    let expired = ca.issue(Leaf::new("expired").valid(-2 * DAY, -DAY));
    let future = ca.issue(Leaf::new("future").valid(DAY, 2 * DAY));
    let (good, other) = (ca.issue(Leaf::new("good")), ca.issue(Leaf::new("other")));
    let huge = "x".repeat((4 << 20) + 1);
    for (chain, key, why) in [
        (expired.chain_pem(), expired.key_pem(), "has expired at"),
        (future.chain_pem(), future.key_pem(), "is not valid before"),
        (good.chain_pem(), other.key_pem(), "is not the key of the certificate"),
        (String::new(), good.key_pem(), "is empty"),
        (good.chain_pem(), String::new(), "is empty"),
        (huge.clone(), good.key_pem(), "has more than 4194304 bytes"),
        (good.chain_pem(), huge, "has more than 4194304 bytes"),
    ] {
        folder.write(&folder.certificate_file(), &chain).unwrap();
        folder.write(&folder.private_key_file(), &key).unwrap();
        next_read(&watcher).await;
        assert_eq!(subject(&watcher).await, "CN=first");
        let [problem] = &watcher.problems()[..] else { panic!("{:?}", watcher.problems()) };
        assert!(problem.why.contains(why), "{problem} should contain {why:?}");
    }
    folder.write_identity(&good).unwrap();
    next_read(&watcher).await;
    assert_eq!(subject(&watcher).await, "CN=good");
    assert_eq!(watcher.problems(), []);
}

#[tokio::test(start_paused = true)]
async fn a29_34_files_are_read_at_the_interval_and_more_often_while_they_are_missing() {
    let ca = Authority::new("ca");
    let folder = folder(&ca);
    let slow = CertificateFiles { refresh_interval: Duration::from_secs(600), ..mtls_files(&folder) };
    let pause = async |watcher: &FileWatcher| {
        watcher.wait_for_reads(1).await;
        let start = tokio::time::Instant::now();
        watcher.wait_for_reads(2).await;
        start.elapsed().as_secs()
    };
    assert_eq!(pause(&watch(slow.clone())).await, 600);
    let often = CertificateFiles { refresh_interval: Duration::ZERO, ..slow.clone() };
    assert_eq!(pause(&watch(often)).await, 1);
    fs::remove_file(folder.ca_file()).unwrap();
    let watcher = watch(slow);
    assert_eq!(pause(&watcher).await, 1);
    folder.write_ca(&[&ca]).unwrap();
    next_read(&watcher).await;
    watcher.trust().await.unwrap().unwrap();
}

#[test]
fn a_watcher_outlives_the_runtime_of_its_first_user() {
    let ca = Authority::new("ca");
    let folder = folder(&ca);
    let files = CertificateFiles { identity: Some(identity_files(&folder)), ..Default::default() };
    let watcher = watch(files);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime().block_on(subject(&watcher)), "CN=first");
    folder.write_identity(&ca.issue(Leaf::new("second"))).unwrap();
    // The first runtime is gone; the second one reads the files without waiting for the interval.
    let reads = watcher.reads();
    runtime().block_on(async {
        watcher.wait_for_reads(reads + 1).await;
        assert_eq!(subject(&watcher).await, "CN=second");
    });
}
