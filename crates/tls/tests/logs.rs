//! What is logged of certificate files. Alone in its process: a logger of one thread misses lines if another thread without
//! one has logged them first.

mod common;

use common::{Clock, mtls_files};
use proxyless_testkit::LogText;
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
use proxyless_tls::{FileWatcher, crypto_provider};

#[tokio::test(start_paused = true)]
async fn a_problem_is_logged_once_and_without_the_content() {
    let log = LogText::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let lines = || log.text().lines().map(str::to_owned).collect::<Vec<_>>();
    let ca = Authority::new("ca");
    let folder = CertificateFolder::new().unwrap();
    folder.write_ca(&[&ca]).unwrap();
    folder.write_identity(&ca.issue(Leaf::new("first"))).unwrap();
    let watcher = FileWatcher::new(mtls_files(&folder), crypto_provider().unwrap(), Clock::start());
    watcher.wait_for_reads(3).await;
    assert_eq!(lines().len(), 0, "{:?}", lines());
    let other = ca.issue(Leaf::new("other")).key_pem();
    folder.write(&folder.private_key_file(), &other).unwrap();
    watcher.wait_for_reads(watcher.reads() + 5).await;
    let [line] = &lines()[..] else { panic!("{:?}", lines()) };
    assert!(line.contains("WARN") && line.contains("private_key.pem: is not the key"), "{line}");
    assert!(line.contains("the previous content stays in use"), "{line}");
    assert!(!other.lines().any(|secret| line.contains(secret)), "{line}");
    folder.write_identity(&ca.issue(Leaf::new("second"))).unwrap();
    watcher.wait_for_reads(watcher.reads() + 5).await;
    assert_eq!(lines().len(), 2, "{:?}", lines());
    assert!(lines()[1].contains("good again"), "{:?}", lines());
}
