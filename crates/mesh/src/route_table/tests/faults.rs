//! The faults of an RPC (gRFC A33), and the config that applies (A39).

use proxyless_xds::resource::{
    AbortSource, DelaySource, FaultAbort, FaultConfig, FaultDelay, Fraction, HttpFilterConfig,
};

use super::*;

const ALWAYS: Fraction = Fraction { numerator: 100, denominator: 100 };
const SECOND: Duration = Duration::from_secs(1);

fn aborting(code: Code) -> FaultConfig {
    aborting_some(AbortSource::Fixed(code), ALWAYS)
}

fn aborting_some(code: AbortSource, fraction: Fraction) -> FaultConfig {
    FaultConfig { abort: Some(FaultAbort { code, fraction }), ..FaultConfig::default() }
}

fn delaying(duration: DelaySource, fraction: Fraction) -> FaultConfig {
    FaultConfig { delay: Some(FaultDelay { duration, fraction }), ..FaultConfig::default() }
}

fn filter(name: &str, config: FaultConfig) -> HttpFilter {
    HttpFilter { name: name.into(), config: HttpFilterConfig::Fault(Arc::new(config)) }
}

fn overriding(config: HttpFilterConfig) -> FilterOverrides {
    [("fault".into(), config)].into_iter().collect()
}

fn fault(config: FaultConfig) -> HttpFilterConfig {
    HttpFilterConfig::Fault(Arc::new(config))
}

/// The faults of one RPC.
fn faults(host: &VirtualHost, filters: &[HttpFilter], headers: &HeaderMap, rng: &mut Rng) -> Vec<Fault> {
    let table = RouteTable::new(host, None, filters, claim);
    let selection = table.select("/", headers, rng).expect("a route");
    selection.faults.iter().filter_map(|filter| filter.decide(headers, rng)).collect()
}

/// The only fault of an RPC with these headers, if any.
fn one(config: &FaultConfig, with: &[(&'static str, &'static str)]) -> Option<Fault> {
    let filters = [filter("fault", config.clone())];
    let mut found = faults(&host(vec![to("c")]), &filters, &headers(with), &mut Rng::new(1));
    assert!(found.len() <= 1, "{found:?}");
    found.pop()
}

fn code(config: &FaultConfig, with: &[(&'static str, &'static str)]) -> Option<Code> {
    one(config, with).and_then(|fault| fault.abort)
}

fn delay(config: &FaultConfig, with: &[(&'static str, &'static str)]) -> Option<Duration> {
    one(config, with).and_then(|fault| fault.delay)
}

/// The number of RPCs out of ten thousand with a delay, an abort, and both.
fn shares(config: &FaultConfig, with: &[(&'static str, &'static str)]) -> (u32, u32, u32) {
    let (host, filters) = (host(vec![to("c")]), [filter("fault", config.clone())]);
    let (headers, mut rng) = (headers(with), Rng::new(3));
    let table = RouteTable::new(&host, None, &filters, claim);
    let (mut delays, mut aborts, mut both) = (0, 0, 0);
    for _ in 0..10_000 {
        let selection = table.select("/", &headers, &mut rng).expect("a route");
        let found = selection.faults[0].decide(&headers, &mut rng);
        let (delay, abort) = found.map_or((None, None), |fault| (fault.delay, fault.abort));
        delays += u32::from(delay.is_some());
        aborts += u32::from(abort.is_some());
        both += u32::from(delay.is_some() && abort.is_some());
    }
    (delays, aborts, both)
}

#[test]
fn a33_14_a_fault_has_a_delay_and_an_abort() {
    let config = FaultConfig {
        max_active_faults: Some(9),
        abort: aborting(Code::NotFound).abort,
        ..delaying(DelaySource::Fixed(SECOND), ALWAYS)
    };
    let expected = Fault {
        filter: "fault".into(),
        delay: Some(SECOND),
        abort: Some(Code::NotFound),
        max_active_faults: Some(9),
    };
    assert_eq!(one(&config, &[]), Some(expected));
    assert_eq!(one(&delaying(DelaySource::Fixed(Duration::ZERO), ALWAYS), &[]), None);
}

#[test]
fn a39_a33_the_most_specific_override_replaces_the_fault() {
    let filters = [filter("fault", aborting(Code::Internal))];
    let mut host = host(vec![to("c")]);
    let code = |host: &VirtualHost| {
        let found = faults(host, &filters, &HeaderMap::new(), &mut Rng::new(1));
        found.first().and_then(|fault| fault.abort)
    };
    assert_eq!(code(&host), Some(Code::Internal));
    host.filter_overrides = overriding(fault(aborting(Code::Aborted)));
    assert_eq!(code(&host), Some(Code::Aborted));
    host.routes[0].filter_overrides = overriding(fault(FaultConfig::default()));
    assert_eq!(code(&host), None, "an empty fault is an override, too");
    let of_cluster = overriding(fault(aborting(Code::DataLoss)));
    let cluster = WeightedCluster { name: "c".into(), weight: 1, filter_overrides: of_cluster };
    host.routes[0].action = Some(action(ClusterSpecifier::Weighted(vec![cluster])));
    assert_eq!(code(&host), Some(Code::DataLoss));
    host.routes[0].action = Some(action(ClusterSpecifier::Cluster("c".into())));
    host.routes[0].filter_overrides = overriding(HttpFilterConfig::Disabled);
    assert_eq!(code(&host), None);
}

#[test]
fn a33_each_fault_filter_of_the_chain_applies_in_order() {
    let filters = [
        filter("first", delaying(DelaySource::Fixed(SECOND), ALWAYS)),
        filter("idle", FaultConfig::default()),
        filter("second", aborting(Code::Internal)),
    ];
    let found = faults(&host(vec![to("c")]), &filters, &HeaderMap::new(), &mut Rng::new(1));
    let names: Vec<_> = found.iter().map(|fault| &*fault.filter).collect();
    assert_eq!(names, ["first", "second"]);
}

#[test]
fn a33_4_headers_do_not_count_without_the_filters_consent() {
    let with = [("x-envoy-fault-abort-grpc-request", "5"), ("x-envoy-fault-delay-request", "20")];
    assert_eq!(code(&aborting(Code::Internal), &with), Some(Code::Internal));
    assert_eq!(delay(&delaying(DelaySource::Fixed(SECOND), ALWAYS), &with), Some(SECOND));
    let percentage = [("x-envoy-fault-abort-percentage", "0")];
    assert_eq!(code(&aborting(Code::Internal), &percentage), Some(Code::Internal));
}

#[test]
fn a33_5_headers_name_the_status() {
    let config = aborting_some(AbortSource::Header, ALWAYS);
    let (http, grpc) = ("x-envoy-fault-abort-request", "x-envoy-fault-abort-grpc-request");
    assert_eq!(code(&config, &[]), None);
    assert_eq!(code(&config, &[(grpc, "5")]), Some(Code::NotFound));
    assert_eq!(code(&config, &[(grpc, "0")]), Some(Code::Ok));
    assert_eq!(code(&config, &[(http, "503")]), Some(Code::Unavailable));
    assert_eq!(code(&config, &[(http, "401"), (grpc, "5")]), Some(Code::Unauthenticated));
}

#[test]
fn a33_6_a_header_has_the_delay_in_milliseconds() {
    let config = delaying(DelaySource::Header, ALWAYS);
    assert_eq!(delay(&config, &[]), None);
    let with = [("x-envoy-fault-delay-request", "53")];
    assert_eq!(delay(&config, &with), Some(Duration::from_millis(53)));
}

#[test]
fn a33_7_a_header_lowers_the_percentage_within_the_filters_denominator() {
    let fraction = Fraction { numerator: 4_000, denominator: 10_000 };
    let config = FaultConfig {
        abort: aborting_some(AbortSource::Header, fraction).abort,
        ..delaying(DelaySource::Header, fraction)
    };
    let with = |percentage: &'static str| {
        [
            ("x-envoy-fault-delay-request", "1"),
            ("x-envoy-fault-delay-request-percentage", percentage),
            ("x-envoy-fault-abort-request", "503"),
            ("x-envoy-fault-abort-request-percentage", percentage),
        ]
    };
    for (percentage, expected) in [("0", 0), ("1000", 1_000), ("10000", 4_000)] {
        let (delays, aborts, _) = shares(&config, &with(percentage));
        assert!(delays.abs_diff(expected) < 200, "{delays} of {expected}");
        assert!(aborts.abs_diff(expected) < 200, "{aborts} of {expected}");
    }
    let other_name = [("x-envoy-fault-abort-request", "503"), ("x-envoy-fault-abort-percentage", "0")];
    assert_eq!(shares(&config, &other_name).1, 0);
}

#[test]
fn a33_8_invalid_headers_are_ignored() {
    let abort = aborting_some(AbortSource::Header, ALWAYS);
    let (http, grpc) = ("x-envoy-fault-abort-request", "x-envoy-fault-abort-grpc-request");
    for value in ["", "x", "-1", "99", "600", "5.0", "99999999999999"] {
        assert_eq!(code(&abort, &[(http, value)]), None, "{value:?}");
        assert_eq!(code(&abort, &[(grpc, value)]), None, "{value:?}");
        assert_eq!(code(&abort, &[(http, value), (grpc, "5")]), Some(Code::NotFound), "{value:?}");
    }
    let percentage = [(grpc, "5"), ("x-envoy-fault-abort-request-percentage", "none")];
    assert_eq!(code(&abort, &percentage), Some(Code::NotFound), "the filter's percentage applies");
    let config = delaying(DelaySource::Header, ALWAYS);
    for value in ["", "x", "-1", "1s"] {
        assert_eq!(delay(&config, &[("x-envoy-fault-delay-request", value)]), None, "{value:?}");
    }
}

#[test]
fn a33_13_delay_and_abort_are_independent() {
    let config = FaultConfig {
        abort: aborting_some(
            AbortSource::Fixed(Code::Internal),
            Fraction { numerator: 50, denominator: 100 },
        )
        .abort,
        ..delaying(DelaySource::Fixed(SECOND), Fraction { numerator: 200_000, denominator: 1_000_000 })
    };
    let (delays, aborts, both) = shares(&config, &[]);
    assert!(delays.abs_diff(2_000) < 200 && aborts.abs_diff(5_000) < 200, "{delays} {aborts}");
    assert!(both.abs_diff(1_000) < 150, "{both}: with one random number it would be 2000");
}
