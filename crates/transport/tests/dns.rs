//! The system's resolver against a DNS server of the test.
#![allow(clippy::unwrap_used)]

#[path = "support/dns_server.rs"]
mod dns_server;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dns_server::{DnsServer, Reply};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{CNAME, TXT};
use hickory_proto::rr::{Name, RData, RecordType};
use proxyless_transport::dns::{DnsAnswer, Resolve, ResolveError, ResolveErrorKind, SystemResolver};

fn v4(last: u8) -> RData {
    RData::A(Ipv4Addr::new(127, 0, 0, last).into())
}

fn v6() -> RData {
    RData::AAAA(Ipv6Addr::LOCALHOST.into())
}

/// A server that has A records only.
async fn v4_server(records: Vec<(u32, RData)>) -> DnsServer {
    DnsServer::start(move |name, kind| match kind {
        RecordType::A => {
            Reply::Records(records.iter().map(|(ttl, data)| (name.clone(), *ttl, data.clone())).collect())
        }
        _ => Reply::Records(Vec::new()),
    })
    .await
}

async fn ask(server: &DnsServer, host: &str) -> Result<DnsAnswer, ResolveError> {
    let resolver = SystemResolver::new().servers([server.address]).retries(0).timeout(Duration::from_secs(5));
    resolver.resolve(host, 443).await
}

fn set(answer: &DnsAnswer) -> BTreeSet<String> {
    answer.addresses.iter().map(SocketAddr::to_string).collect()
}

#[tokio::test]
async fn both_families_are_asked_for_and_have_the_port() {
    let server = DnsServer::start(|name, kind| {
        let records = match kind {
            RecordType::A => vec![(300, v4(1)), (300, v4(2)), (300, v4(1))],
            RecordType::AAAA => vec![(300, v6())],
            _ => Vec::new(),
        };
        Reply::Records(records.into_iter().map(|(ttl, data)| (name.clone(), ttl, data)).collect())
    })
    .await;
    let answer = ask(&server, "db.test").await.unwrap();
    let expected = ["127.0.0.1:443", "127.0.0.2:443", "[::1]:443"].map(String::from);
    assert_eq!((set(&answer), answer.addresses.len()), (expected.into(), 3));
    let asked = [("db.test.".to_owned(), RecordType::A), ("db.test.".to_owned(), RecordType::AAAA)];
    assert_eq!(server.asked(), asked);
}

#[tokio::test]
async fn a37_30_no_service_config_is_asked_for() {
    let server = DnsServer::start(|name, kind| {
        // As gRFC A2 publishes it.
        let config = r#"grpc_config=[{"serviceConfig":{"loadBalancingConfig":[{"round_robin":{}}]}}]"#;
        let data = match kind {
            RecordType::A => v4(1),
            RecordType::AAAA => v6(),
            _ => RData::TXT(TXT::new(vec![config.into()])),
        };
        Reply::Records(vec![(name.clone(), 60, data)])
    })
    .await;
    assert_eq!(ask(&server, "db.test").await.unwrap().addresses.len(), 2);
    let asked = server.asked();
    let addresses_only = |(name, kind): &(String, RecordType)| {
        name == "db.test." && [RecordType::A, RecordType::AAAA].contains(kind)
    };
    assert!(asked.iter().all(addresses_only), "{asked:?}");
}

#[tokio::test]
async fn one_family_is_enough() {
    let server = v4_server(vec![(60, v4(1))]).await;
    assert_eq!(set(&ask(&server, "db.test").await.unwrap()), ["127.0.0.1:443".to_owned()].into());
    // Nor does the failure of the other one matter.
    let server = DnsServer::start(|name, kind| match kind {
        RecordType::AAAA => Reply::Code(ResponseCode::ServFail),
        _ => Reply::Records(vec![(name.clone(), 60, v4(1))]),
    })
    .await;
    assert_eq!(set(&ask(&server, "db.test").await.unwrap()), ["127.0.0.1:443".to_owned()].into());
}

#[tokio::test]
async fn a37_29_a_family_that_is_not_answered_is_not_waited_for() {
    for silent in [RecordType::AAAA, RecordType::A] {
        let server = DnsServer::start(move |name, kind| match kind {
            _ if kind == silent => Reply::Silence,
            RecordType::A => Reply::Records(vec![(name.clone(), 60, v4(1))]),
            _ => Reply::Records(vec![(name.clone(), 60, v6())]),
        })
        .await;
        let resolver = SystemResolver::new().servers([server.address]).timeout(Duration::from_secs(60));
        let answer = tokio::time::timeout(Duration::from_secs(30), resolver.resolve("db.test", 443));
        assert_eq!(answer.await.expect("in time").unwrap().addresses.len(), 1);
    }
}

#[tokio::test]
async fn a37_29_a_family_is_waited_for_if_the_other_has_no_addresses() {
    for empty in [Reply::Records(Vec::new()), Reply::Code(ResponseCode::NXDomain)] {
        // AAAA has none, and A is late: it is asked for once more.
        let (first, empty) = (std::cell::Cell::new(true), std::cell::RefCell::new(Some(empty)));
        let server = DnsServer::start(move |name, kind| match kind {
            RecordType::A if first.replace(false) => Reply::Silence,
            RecordType::A => Reply::Records(vec![(name.clone(), 60, v4(1))]),
            _ => empty.borrow_mut().take().unwrap_or(Reply::Silence),
        })
        .await;
        let resolver =
            SystemResolver::new().servers([server.address]).retries(3).timeout(Duration::from_secs(1));
        assert_eq!(resolver.resolve("db.test", 443).await.unwrap().addresses.len(), 1);
    }
}

#[tokio::test]
async fn the_servers_order_is_kept() {
    let server = v4_server([3, 1, 2].map(|last| (60, v4(last))).into()).await;
    let addresses = ask(&server, "db.test").await.unwrap().addresses;
    assert_eq!(
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["127.0.0.3:443", "127.0.0.1:443", "127.0.0.2:443"]
    );
}

#[tokio::test]
async fn the_least_ttl_counts_even_that_of_an_alias() {
    let server = v4_server(vec![(300, v4(1)), (40, v4(2))]).await;
    assert_eq!(ask(&server, "db.test").await.unwrap().ttl, Some(Duration::from_secs(40)));
    let server = DnsServer::start(|name, kind| {
        let target = Name::from_ascii("real.test.").unwrap();
        let alias = (name.clone(), 7, RData::CNAME(CNAME(target.clone())));
        Reply::Records(match kind {
            RecordType::A => vec![alias, (target, 300, v4(1))],
            _ => Vec::new(),
        })
    })
    .await;
    let answer = ask(&server, "alias.test").await.unwrap();
    assert_eq!((answer.addresses.len(), answer.ttl), (1, Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn every_lookup_sends_a_new_query() {
    let server = v4_server(vec![(86_400, v4(1))]).await;
    let resolver = SystemResolver::new().servers([server.address]);
    for round in 1..=3 {
        resolver.resolve("db.test", 1).await.unwrap();
        assert_eq!(server.asked().len(), 2 * round);
    }
}

#[tokio::test]
async fn a_trailing_dot_is_not_part_of_the_name() {
    let server = v4_server(vec![(60, v4(1))]).await;
    assert_eq!(ask(&server, "db.test.").await.unwrap().addresses.len(), 1);
    assert_eq!(server.asked()[0].0, "db.test.");
}

#[tokio::test]
async fn unknown_names_are_called_that() {
    let server = DnsServer::start(|_, _| Reply::Code(ResponseCode::NXDomain)).await;
    let error = ask(&server, "nowhere.test").await.unwrap_err();
    assert_eq!(*error.kind(), ResolveErrorKind::NotFound);
    let expected = format!("nowhere.test: the name does not exist (NXDOMAIN), asked {}", server.address);
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn names_without_addresses_are_called_that() {
    let server = DnsServer::start(|_, _| Reply::Records(Vec::new())).await;
    let error = ask(&server, "mail.test").await.unwrap_err();
    assert_eq!(*error.kind(), ResolveErrorKind::NoAddresses);
    assert!(error.to_string().contains("mail.test") && error.to_string().contains("AAAA"), "{error}");
}

#[tokio::test]
async fn errors_of_the_server_are_named() {
    for (code, expected) in [(ResponseCode::ServFail, "SERVFAIL"), (ResponseCode::Refused, "REFUSED")] {
        let server = DnsServer::start(move |_, _| Reply::Code(code)).await;
        let error = ask(&server, "db.test").await.unwrap_err();
        assert_eq!(*error.kind(), ResolveErrorKind::Answered(expected.to_owned()));
        for part in ["db.test", expected, &server.address.to_string()] {
            assert!(error.to_string().contains(part), "{part} is not in {error}");
        }
    }
}

#[tokio::test]
async fn silence_is_called_that() {
    let server = DnsServer::start(|_, _| Reply::Silence).await;
    let resolver =
        SystemResolver::new().servers([server.address]).retries(0).timeout(Duration::from_millis(50));
    let error = resolver.resolve("db.test", 443).await.unwrap_err();
    assert_eq!(*error.kind(), ResolveErrorKind::TimedOut, "{error}");
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
}

#[tokio::test]
async fn a_second_server_answers_for_a_broken_one() {
    let broken = DnsServer::start(|_, _| Reply::Code(ResponseCode::ServFail)).await;
    let good = DnsServer::start(|name, kind| {
        Reply::Records(vec![(name.clone(), 60, if kind == RecordType::A { v4(1) } else { v6() })])
    })
    .await;
    for servers in [[broken.address, good.address], [good.address, broken.address]] {
        let resolver = SystemResolver::new().servers(servers).retries(0);
        let answer = resolver.resolve("db.test", 443).await.unwrap();
        assert_eq!(answer.addresses.len(), 2, "neither family is lost: {answer:?}");
    }
}

#[tokio::test]
async fn the_hosts_file_comes_first() {
    let server = DnsServer::start(|_, _| Reply::Code(ResponseCode::NXDomain)).await;
    let answer = ask(&server, "localhost").await.unwrap();
    assert!(answer.addresses.iter().all(|address| address.ip().is_loopback()), "{answer:?}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn scoped_addresses_need_no_server() {
    let server = DnsServer::start(|_, _| Reply::Code(ResponseCode::NXDomain)).await;
    for host in ["fe80::1%1", if cfg!(target_os = "linux") { "fe80::1%lo" } else { "fe80::1%1" }] {
        let [SocketAddr::V6(address)] = ask(&server, host).await.unwrap().addresses[..] else {
            panic!("{host}")
        };
        assert_eq!(
            (address.ip().to_string(), address.port(), address.scope_id()),
            ("fe80::1".into(), 443, 1)
        );
    }
    let error = ask(&server, "fe80::1%no-such-scope").await.unwrap_err();
    assert!(error.to_string().starts_with("fe80::1%no-such-scope: "), "{error}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn what_is_no_name_is_an_error() {
    let server = DnsServer::start(|_, _| Reply::Code(ResponseCode::NXDomain)).await;
    for host in ["a..b", &"x".repeat(64), &"a.".repeat(200)] {
        let error = ask(&server, host).await.unwrap_err();
        assert!(matches!(error.kind(), ResolveErrorKind::Failed(_)), "{error}");
    }
    assert!(server.asked().is_empty());
}
