//! The catalogue: names, units, labels and bucket bounds as the gRFCs have them.

use super::{Default, Instrument, Kind, Label};

/// The bounds of latencies in seconds (A66).
pub const LATENCY_BOUNDS: &[f64] = &[
    0.0, 0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008,
    0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4,
    0.5, 0.65, 0.8, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
];

/// The bounds of sizes in bytes (A66).
pub const SIZE_BOUNDS: &[f64] = &[
    0.0,
    1024.0,
    2048.0,
    4096.0,
    16384.0,
    65536.0,
    262144.0,
    1048576.0,
    4194304.0,
    16777216.0,
    67108864.0,
    268435456.0,
    1073741824.0,
    4294967296.0,
];

/// The bounds of retries (A96).
pub const RETRY_BOUNDS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0];

/// The bounds of transparent retries (A96).
pub const TRANSPARENT_RETRY_BOUNDS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0];

/// The bounds of weights. A78 names none; a weight is a rate of requests over a utilization, so it may have any magnitude.
pub const WEIGHT_BOUNDS: &[f64] =
    &[0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 100000.0];

macro_rules! catalogue {
    ($($(#[$doc:meta])* $ident:ident = $name:literal, $kind:expr, $unit:literal, $default:ident,
        [$($label:ident),*], [$($optional:ident),*], $description:literal;)*) => {
        $($(#[$doc])* pub static $ident: Instrument = Instrument {
            name: $name,
            description: $description,
            unit: $unit,
            kind: $kind,
            labels: &[$(Label::$label),*],
            optional_labels: &[$(Label::$optional),*],
            default: Default::$default,
        };)*

        /// Every instrument, in the order of the catalogue.
        pub static ALL: &[&Instrument] = &[$(&$ident),*];
    };
}

catalogue! {
    /// A66.
    ATTEMPT_STARTED = "grpc.client.attempt.started", Kind::Counter, "{attempt}", On,
        [Method, Target], [],
        "Number of client call attempts started";
    /// A66, A78, A89.
    ATTEMPT_DURATION = "grpc.client.attempt.duration", Kind::Histogram(LATENCY_BOUNDS), "s", On,
        [Method, Target, Status], [Locality, BackendService],
        "End-to-end time taken to complete a client call attempt";
    /// A66, A78, A89.
    ATTEMPT_SENT = "grpc.client.attempt.sent_total_compressed_message_size", Kind::Histogram(SIZE_BOUNDS), "By", On,
        [Method, Target, Status], [Locality, BackendService],
        "Compressed message bytes sent per client call attempt";
    /// A66, A78, A89.
    ATTEMPT_RECEIVED = "grpc.client.attempt.rcvd_total_compressed_message_size", Kind::Histogram(SIZE_BOUNDS), "By", On,
        [Method, Target, Status], [Locality, BackendService],
        "Compressed message bytes received per call attempt";
    /// A66.
    CALL_DURATION = "grpc.client.call.duration", Kind::Histogram(LATENCY_BOUNDS), "s", On,
        [Method, Target, Status], [],
        "Time taken by gRPC to complete an RPC from application's perspective";
    /// A96.
    CALL_RETRIES = "grpc.client.call.retries", Kind::Histogram(RETRY_BOUNDS), "{retry}", Off,
        [Method, Target], [],
        "Number of retries during the client call; calls without retries are not recorded";
    /// A96.
    CALL_TRANSPARENT_RETRIES = "grpc.client.call.transparent_retries", Kind::Histogram(TRANSPARENT_RETRY_BOUNDS),
        "{transparent_retry}", Off,
        [Method, Target], [],
        "Number of transparent retries during the client call; calls without transparent retries are not recorded";
    /// A96.
    CALL_RETRY_DELAY = "grpc.client.call.retry_delay", Kind::Histogram(LATENCY_BOUNDS), "s", Off,
        [Method, Target], [],
        "Total time of delay while there is no active attempt during the client call";
    /// A78, A89.
    WRR_RR_FALLBACK = "grpc.lb.wrr.rr_fallback", Kind::Counter, "{update}", Off,
        [Target], [Locality, BackendService],
        "Number of scheduler updates in which there were not enough endpoints with valid weight, so that the weighted_round_robin policy fell back to round_robin";
    /// A78, A89.
    WRR_NOT_YET_USABLE = "grpc.lb.wrr.endpoint_weight_not_yet_usable", Kind::Counter, "{endpoint}", Off,
        [Target], [Locality, BackendService],
        "Number of endpoints from each scheduler update that do not yet have usable weight information";
    /// A78, A89.
    WRR_STALE = "grpc.lb.wrr.endpoint_weight_stale", Kind::Counter, "{endpoint}", Off,
        [Target], [Locality, BackendService],
        "Number of endpoints from each scheduler update whose latest weight is older than the expiration period";
    /// A78, A89.
    WRR_WEIGHTS = "grpc.lb.wrr.endpoint_weights", Kind::Histogram(WEIGHT_BOUNDS), "{weight}", Off,
        [Target], [Locality, BackendService],
        "Weight of each endpoint, recorded on every scheduler update; 0 for endpoints without usable weight";
    /// A91.
    EJECTIONS_ENFORCED = "grpc.lb.outlier_detection.ejections_enforced", Kind::Counter, "{ejection}", Off,
        [Target, DetectionMethod], [BackendService],
        "Enforced outlier ejections by detection method";
    /// A91.
    EJECTIONS_UNENFORCED = "grpc.lb.outlier_detection.ejections_unenforced", Kind::Counter, "{ejection}", Off,
        [Target, DetectionMethod, UnenforcedReason], [BackendService],
        "Detected outliers that were not ejected, by detection method and reason";
    /// A94.
    DISCONNECTIONS = "grpc.subchannel.disconnections", Kind::Counter, "{disconnection}", Off,
        [Target], [BackendService, Locality, DisconnectError],
        "Number of times the selected subchannel becomes disconnected";
    /// A94.
    ATTEMPTS_SUCCEEDED = "grpc.subchannel.connection_attempts_succeeded", Kind::Counter, "{attempt}", Off,
        [Target], [BackendService, Locality],
        "Number of successful connection attempts";
    /// A94.
    ATTEMPTS_FAILED = "grpc.subchannel.connection_attempts_failed", Kind::Counter, "{attempt}", Off,
        [Target], [BackendService, Locality],
        "Number of failed connection attempts";
    /// A94.
    OPEN_CONNECTIONS = "grpc.subchannel.open_connections", Kind::UpDownCounter, "{connection}", Off,
        [Target], [SecurityLevel, BackendService, Locality],
        "Number of open connections";
    /// A78. A94 replaces it with `grpc.subchannel.disconnections`; dashboards may still use it.
    PICK_FIRST_DISCONNECTIONS = "grpc.lb.pick_first.disconnections", Kind::Counter, "{disconnection}", Off,
        [Target], [],
        "Number of times the selected subchannel becomes disconnected";
    /// A78. A94 replaces it with `grpc.subchannel.connection_attempts_succeeded`.
    PICK_FIRST_SUCCEEDED = "grpc.lb.pick_first.connection_attempts_succeeded", Kind::Counter, "{attempt}", Off,
        [Target], [],
        "Number of successful connection attempts";
    /// A78. A94 replaces it with `grpc.subchannel.connection_attempts_failed`.
    PICK_FIRST_FAILED = "grpc.lb.pick_first.connection_attempts_failed", Kind::Counter, "{attempt}", Off,
        [Target], [],
        "Number of failed connection attempts";
    /// A78.
    XDS_CONNECTED = "grpc.xds_client.connected", Kind::Gauge, "{bool}", Off,
        [Target, XdsServer], [],
        "Whether or not the xDS client currently has a working ADS stream to the xDS server";
    /// A78.
    XDS_SERVER_FAILURE = "grpc.xds_client.server_failure", Kind::Counter, "{failure}", Off,
        [Target, XdsServer], [],
        "Number of times that an xDS server went from healthy to unhealthy";
    /// A78.
    XDS_UPDATES_VALID = "grpc.xds_client.resource_updates_valid", Kind::Counter, "{resource}", Off,
        [Target, XdsServer, XdsResourceType], [],
        "Number of resources received that were considered valid, unchanged ones included";
    /// A78.
    XDS_UPDATES_INVALID = "grpc.xds_client.resource_updates_invalid", Kind::Counter, "{resource}", Off,
        [Target, XdsServer, XdsResourceType], [],
        "Number of resources received that were considered invalid";
    /// A78, A88.
    XDS_RESOURCES = "grpc.xds_client.resources", Kind::Gauge, "{resource}", Off,
        [Target, XdsAuthority, XdsCacheState, XdsResourceType], [],
        "Number of xDS resources";
    /// Not of a gRFC: the label has too many values for most exporters, so it is for inspection.
    ENDPOINT_DURATION = "proxyless.endpoint.duration", Kind::Histogram(LATENCY_BOUNDS), "s", Off,
        [Target, Endpoint], [BackendService],
        "Time from sending an attempt to an endpoint to its end";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a79_names_are_unique_and_only_those_of_grfcs_are_in_the_namespace_of_grpc() {
        let names: BTreeSet<_> = ALL.iter().map(|instrument| instrument.name).collect();
        assert_eq!(names.len(), ALL.len());
        let own: Vec<_> = names.iter().filter(|name| !name.starts_with("grpc.")).collect();
        assert_eq!(own, [&ENDPOINT_DURATION.name]);
        for (position, instrument) in ALL.iter().enumerate() {
            assert_eq!(instrument.index(), position);
            assert_eq!(Instrument::by_name(instrument.name), Some(*instrument));
        }
    }

    #[test]
    fn a66_a79_only_the_stable_per_call_instruments_are_on_by_default() {
        let on = ALL.iter().filter(|instrument| instrument.default == Default::On);
        assert!(on.clone().all(|instrument| instrument.name.starts_with("grpc.client.")));
        assert_eq!(on.count(), 5);
    }

    #[test]
    fn bounds_ascend() {
        for instrument in ALL {
            if let Kind::Histogram(bounds) = instrument.kind {
                assert!(bounds.is_sorted_by(|a, b| a < b), "{}", instrument.name);
            }
        }
    }
}
