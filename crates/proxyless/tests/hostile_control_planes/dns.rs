//! Hostile DNS servers: lookups are bounded in time, queries and addresses, and the last good addresses stay in use.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use proxyless::dns::{DnsAnswer, DnsRefresh, Resolve as _, ResolveError, ResolveErrorKind, SystemResolver};
use proxyless_testkit::Backend;
use proxyless_testkit::resources::*;

use super::common::{PATIENCE, ask, ask_within, builder, mesh, until_only};
use super::dns_server::{A, AAAA, ANSWER, CNAME, Liar, NXDOMAIN, Question, SERVFAIL, TRUNCATED, name};
use super::memory::{measured, unmeasured};

/// Long enough for a busy machine, short enough to wait for.
const SHORT: Duration = Duration::from_millis(500);

fn resolver(liar: &Liar) -> SystemResolver {
    SystemResolver::new().servers([liar.address]).retries(0).timeout(SHORT)
}

async fn resolve(liar: &Liar) -> Result<DnsAnswer, ResolveError> {
    let resolver = resolver(liar);
    // Its own timeout, not that of the test, ends it.
    tokio::time::timeout(PATIENCE, resolver.resolve("db.test", 443)).await.expect("it ends by itself")
}

type Lie = fn(&Question) -> Vec<Vec<u8>>;

const LOCAL: [u8; 4] = [127, 0, 0, 1];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lies_that_are_not_believed() {
    let _shared = unmeasured().await;
    let lies: [(&str, Lie); 12] = [
        ("silence", |_| Vec::new()),
        ("another id", |q| vec![Question { id: q.id.wrapping_add(1), ..q.clone() }.address(60, LOCAL)]),
        ("another question", |q| vec![Question { name: name("other"), ..q.clone() }.address(60, LOCAL)]),
        ("a question as the answer", |q| vec![q.answer(0x0100, &[q.record(A, 60, &LOCAL)])]),
        ("truncated, no TCP", |q| vec![q.answer(TRUNCATED, &[])]),
        ("an empty packet", |_| vec![Vec::new()]),
        ("one byte", |_| vec![vec![0]]),
        ("the id alone", |q| vec![q.id.to_be_bytes().to_vec()]),
        ("garbage", |q| vec![[&q.id.to_be_bytes()[..], &[0xff; 4000]].concat()]),
        ("half an answer", |q| {
            let packet = q.address(60, LOCAL);
            vec![packet[..packet.len() - 3].to_vec()]
        }),
        ("a name that points at itself", |q| {
            let own = super::dns_server::Record { name: vec![0xc0, 29], ..q.record(A, 60, &LOCAL) };
            vec![q.answer(ANSWER, &[own])]
        }),
        ("an address of three bytes", |q| vec![q.answer(ANSWER, &[q.record(q.kind, 60, &[1, 2, 3])])]),
    ];
    let mut running = tokio::task::JoinSet::new();
    for (what, lie) in lies {
        running.spawn(async move {
            let liar = Liar::start(None, lie).await;
            let error = resolve(&liar).await.expect_err(what);
            assert!(error.to_string().starts_with("db.test: "), "{what}: {error}");
            assert!(liar.asked() <= 8, "{what}: {} questions", liar.asked());
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_said_so() {
    let _shared = unmeasured().await;
    let servfail = Liar::start(None, |q| vec![q.answer(SERVFAIL, &[])]).await;
    let kind = resolve(&servfail).await.unwrap_err().kind().clone();
    assert_eq!(kind, ResolveErrorKind::Answered("SERVFAIL".into()));
    let nxdomain = Liar::start(None, |q| vec![q.answer(NXDOMAIN, &[])]).await;
    assert_eq!(*resolve(&nxdomain).await.unwrap_err().kind(), ResolveErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aliases_do_not_go_on_for_ever() {
    let _shared = unmeasured().await;
    let to_itself = Liar::start(None, |q| vec![q.answer(ANSWER, &[q.record(CNAME, 60, &q.name)])]).await;
    let in_a_circle = Liar::start(None, |q| {
        let other = if q.name == name("a") { name("b") } else { name("a") };
        vec![q.answer(ANSWER, &[q.record(CNAME, 60, &other)])]
    })
    .await;
    // A different one each time.
    let chain = Liar::start(None, |q| {
        vec![q.answer(ANSWER, &[q.record(CNAME, 60, &name(&format!("alias{}", q.number)))])]
    })
    .await;
    for (what, liar) in [("itself", to_itself), ("a circle", in_a_circle), ("a chain", chain)] {
        resolve(&liar).await.expect_err(what);
        assert!(liar.asked() <= 50, "{what}: {} questions", liar.asked());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_answers_are_taken() {
    let _shared = unmeasured().await;
    for ttl in [0, u32::MAX] {
        let liar = Liar::start(None, move |q| vec![q.address(ttl, LOCAL)]).await;
        let answer = resolve(&liar).await.unwrap();
        assert_eq!(answer.addresses, ["127.0.0.1:443".parse().unwrap()]);
        assert!(answer.ttl.is_some_and(|ttl| ttl <= Duration::from_secs(u32::MAX.into())), "{answer:?}");
    }
    let v6_only = Liar::start(None, |q| {
        let local = q.record(AAAA, 60, &std::net::Ipv6Addr::LOCALHOST.octets());
        vec![if q.kind == AAAA { q.answer(ANSWER, &[local]) } else { q.answer(ANSWER, &[]) }]
    })
    .await;
    assert_eq!(resolve(&v6_only).await.unwrap().addresses, ["[::1]:443".parse().unwrap()]);
    // The right response after wrong ones.
    let late = Liar::start(None, |q| {
        let forged = Question { id: q.id ^ 0xffff, ..q.clone() };
        vec![forged.address(60, [10, 0, 0, 1]), vec![1, 2, 3], q.address(60, LOCAL)]
    })
    .await;
    assert_eq!(
        resolve(&late).await.map(|answer| answer.addresses),
        Ok(vec!["127.0.0.1:443".parse().unwrap()])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_records() {
    const COUNT: u16 = 4000;
    let mut memory = measured().await;
    let liar = Liar::start(Some(()), |q| {
        if !q.over_tcp {
            return vec![q.answer(TRUNCATED, &[])];
        }
        let address = |i: u16| q.record(A, 60, &[&[10, 0], &i.to_be_bytes()[..]].concat());
        let records: Vec<_> = (0..COUNT).filter(|_| q.kind == A).map(address).collect();
        vec![q.answer(ANSWER, &records)]
    })
    .await;
    memory.begin();
    let resolver = SystemResolver::new().servers([liar.address]).timeout(PATIENCE);
    let answer = resolver.resolve("db.test", 443).await.unwrap();
    assert_eq!(answer.addresses.len(), usize::from(COUNT));
    assert_eq!(answer.addresses[1], "10.0.0.1:443".parse().unwrap(), "in the server's order");
    memory.expect("4,000 records", 16, 4);
}

/// A channel whose only cluster is a name that the hostile server resolves, with the port of a backend.
async fn channel_of(
    liar: &Liar,
    backend: &Backend,
    refresh: DnsRefresh,
) -> (proxyless_testkit::ControlPlane, proxyless::XdsChannel) {
    let plane = mesh(&[]).await;
    plane.set(logical_dns_cluster("cluster", "db.test", backend.address().port()));
    let channel = builder(&plane).dns_resolver(resolver(liar)).dns_refresh(refresh);
    let channel = channel.dns_min_interval(Duration::from_millis(20)).build().unwrap();
    (plane, channel)
}

/// The first response is good; then all kinds of failures follow. A37: the good addresses stay in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a37_last_good_addresses_serve_while_dns_flaps() {
    let _shared = unmeasured().await;
    let backend = Backend::start("a").await.unwrap();
    let lookups = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lookups);
    let liar = Liar::start(None, move |q| {
        if q.kind == A {
            count.fetch_add(1, SeqCst);
        }
        let lookup = count.load(SeqCst);
        match lookup {
            0 | 1 => vec![q.address(0, LOCAL)],
            2 => vec![q.answer(NXDOMAIN, &[])],
            3 => vec![q.answer(SERVFAIL, &[])],
            4 => vec![vec![0xff; 100]],
            5 => vec![q.answer(ANSWER, &[])],
            _ => Vec::new(),
        }
    })
    .await;
    // Its records have expired at once.
    let (_plane, channel) = channel_of(&liar, &backend, DnsRefresh::Ttl { min: Duration::ZERO }).await;
    until_only(&channel, &["a"]).await;
    let began = Instant::now();
    while lookups.load(SeqCst) < 4 {
        assert_eq!(ask(&channel).await.unwrap(), "a");
        assert!(began.elapsed() < PATIENCE, "lookups stop");
    }
    // A second after the first answer, then the backoff: 1 and 1.6 seconds, give or take 20 %.
    let asked = liar.wait_asked(1).await;
    let took = Instant::now().duration_since(asked[0]);
    assert!(took > Duration::from_millis(1000 + 800 + 1280), "four lookups in {took:?}");
    assert!(liar.asked() <= 24, "{} questions", liar.asked());
    assert_eq!(backend.connections(), 1);
}

/// Unusable addresses: RPCs fail with that reason, and good addresses are used when they arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_that_lead_nowhere() {
    let _shared = unmeasured().await;
    let mut running = tokio::task::JoinSet::new();
    // Multicast, broadcast, reserved, and loopback without a listener.
    for ip in [[224, 0, 0, 1], [255, 255, 255, 255], [240, 0, 0, 1], [127, 9, 9, 9]] {
        running.spawn(async move {
            let backend = Backend::start("a").await.unwrap();
            let lookups = AtomicUsize::new(0);
            let liar = Liar::start(None, move |q| {
                let lookup = if q.kind == A { lookups.fetch_add(1, SeqCst) } else { 0 };
                vec![q.address(60, if lookup < 2 { ip } else { LOCAL })]
            })
            .await;
            let (_plane, channel) = channel_of(&liar, &backend, DnsRefresh::OnRequest).await;
            let status = ask_within(&channel, PATIENCE).await.unwrap_err();
            assert_eq!(status.code(), tonic::Code::Unavailable, "{ip:?}: {status:?}");
            until_only(&channel, &["a"]).await;
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic");
    }
    // Any address means this host.
    let backend = Backend::start("a").await.unwrap();
    let liar = Liar::start(None, |q| vec![q.address(60, [0; 4])]).await;
    let (_plane, channel) = channel_of(&liar, &backend, DnsRefresh::OnRequest).await;
    // Whether the system connects there or not, the RPC ends.
    drop(ask_within(&channel, PATIENCE).await);
}

/// TTL 0 does not cause a query loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_expire_at_once_are_asked_for_each_second() {
    let _shared = unmeasured().await;
    let backend = Backend::start("a").await.unwrap();
    let liar = Liar::start(None, |q| vec![q.address(0, LOCAL)]).await;
    let (_plane, channel) = channel_of(&liar, &backend, DnsRefresh::Ttl { min: Duration::ZERO }).await;
    until_only(&channel, &["a"]).await;
    // Each lookup queries two families.
    let asked = liar.wait_asked(7).await;
    let took = asked[6].duration_since(asked[0]);
    assert!(took > Duration::from_millis(2900), "four lookups in {took:?}");
    assert_eq!(ask(&channel).await.unwrap(), "a");
}
