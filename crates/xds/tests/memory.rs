//! Responses take memory in proportion to their length, for every composition.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use proxyless_sans_io::Time;
use proxyless_xds::bootstrap::Bootstrap;
use proxyless_xds::client::{Effect, Input, NackMode, WatchId, WatchKey, WatcherId, XdsCore, XdsCoreConfig};
use proxyless_xds::resource::ResourceType;
use proxyless_xds::{Gates, StreamId};

struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-layout.size().cast_signed());
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A field of protobuf that has a length.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        bytes.push(length as u8 & 0x7f | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(value);
    bytes
}

fn empty_fields(number: u8, count: usize) -> Vec<u8> {
    [number << 3 | 2, 0].repeat(count)
}

fn resource(of: ResourceType, value: &[u8]) -> Vec<u8> {
    field(2, &[field(1, of.type_url().as_bytes()), field(2, value)].concat())
}

fn response(of: ResourceType, resources: &[u8]) -> Bytes {
    let head = [field(1, b"1"), field(4, of.type_url().as_bytes()), field(5, b"n1")].concat();
    [&head, resources].concat().into()
}

/// An assignment with one locality of weight 1 that has these endpoints.
fn assignment(name: &str, endpoints: &[u8]) -> Vec<u8> {
    let locality = [field(1, &[]), field(3, &[0x08, 1]), endpoints.to_vec()].concat();
    [field(1, name.as_bytes()), field(2, &locality)].concat()
}

/// The peak memory of a core while it handled the response, and its answer.
fn peak(of: ResourceType, response: Bytes, mode: NackMode) -> (isize, String) {
    let bootstrap = Bootstrap::builder().server("xds.test:1").node_id("n").build().expect("a bootstrap");
    let mut config = XdsCoreConfig::new(&bootstrap, Gates::default(), 1);
    config.nack_mode = mode;
    let mut core = XdsCore::new(config);
    for (id, name) in ["a", "b"].into_iter().enumerate() {
        let watch = Input::Watch {
            watch: WatchKey { watcher: WatcherId(0), watch: WatchId(id as u64) },
            resource_type: of,
            name: name.into(),
        };
        core.handle(Time::ZERO, watch);
    }
    core.handle(Time::ZERO, Input::StreamUp { stream: StreamId(1) });
    core.handle(Time::ZERO, Input::SendDone { stream: StreamId(1) });
    while core.poll_effect().is_some() {}
    let before = HELD.get();
    PEAK.set(before);
    core.handle(Time::ZERO, Input::Message { stream: StreamId(1), bytes: response });
    let peak = PEAK.get() - before;
    let sent = std::iter::from_fn(|| core.poll_effect()).find_map(|effect| match effect {
        Effect::Send { request, .. } => Some(String::from_utf8_lossy(&request.head).into_owned()),
        _ => None,
    });
    (peak, sent.expect("an answer"))
}

#[track_caller]
fn check(of: ResourceType, resources: &[u8], mode: NackMode, factor: isize, nack: &str) {
    let response = response(of, resources);
    let length = response.len().cast_signed();
    let (peak, answer) = peak(of, response, mode);
    assert!(answer.contains(nack), "{answer}");
    let needed = peak / length;
    assert!(needed <= factor, "{length} bytes took {peak}, {needed} times as much");
}

const EDS: ResourceType = ResourceType::ClusterLoadAssignment;
const CDS: ResourceType = ResourceType::Cluster;

#[test]
fn endpoints_without_content() {
    let endpoints = |count| resource(EDS, &assignment("a", &empty_fields(2, count)));
    check(EDS, &endpoints(500_000), NackMode::PerResource, 2, "more than 250000 endpoints, the limit");
    check(EDS, &endpoints(200_000), NackMode::PerResource, 120, "; and 199950 more");
}

#[test]
fn drop_categories_without_content() {
    let drops = |count| {
        let policy = field(4, &empty_fields(2, count));
        resource(EDS, &[field(1, b"a"), policy].concat())
    };
    check(EDS, &drops(5_000_000), NackMode::PerResource, 2, "more than 250000 endpoints, the limit");
    check(EDS, &drops(100_000), NackMode::PerResource, 50, " more");
}

#[test]
fn resources_without_content() {
    check(
        CDS,
        &empty_fields(2, 1_000_000),
        NackMode::PerResource,
        2,
        "more than 100000 resources, the limit",
    );
    check(CDS, &empty_fields(2, 100_000), NackMode::PerResource, 70, "; and 99950 more");
}

#[test]
fn virtual_hosts_without_content() {
    let routes = [field(1, b"a"), empty_fields(2, 1_000_000)].concat();
    let of = ResourceType::RouteConfiguration;
    check(of, &resource(of, &routes), NackMode::PerResource, 2, "more than 100000 routes, the limit");

    // The same inside of a Listener, behind one that is replaced by it.
    let inline = |value: &[u8]| {
        let api = field(1, &field(2, value));
        // The key of field 19 has two bytes.
        [&[0x9a], &[0x01], &field(0, &api)[1..]].concat()
    };
    let listener = [field(1, b"a"), inline(b"\xff"), inline(&field(4, &routes))].concat();
    let of = ResourceType::Listener;
    check(of, &resource(of, &listener), NackMode::PerResource, 2, "more than 100000 routes, the limit");
}

#[test]
fn good_and_bad_resources_beside_each_other() {
    for mode in [NackMode::PerResource, NackMode::WholeResponse] {
        let good = |i: u32| resource(EDS, &assignment(&format!("good{i}"), &[]));
        let bad = |i: u32| resource(EDS, &assignment(&format!("bad{i}"), &empty_fields(2, 50)));
        let all: Vec<u8> = (0..4000).flat_map(|i| [good(i), bad(i)].concat()).collect();
        check(EDS, &all, mode, 5, " more");
    }
}

#[test]
fn clusters_of_an_aggregate_without_content() {
    let aggregate = |count| {
        let url = b"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig";
        let any = [field(1, url), field(2, &empty_fields(1, count))].concat();
        // The key of field 38 has two bytes.
        let custom = [&[0xb2], &[0x02], &field(0, &field(2, &any))[1..]].concat();
        resource(CDS, &[field(1, b"a"), custom].concat())
    };
    check(CDS, &aggregate(1_000_000), NackMode::PerResource, 2, "more than the limit of 1048576");
    check(CDS, &aggregate(400_000), NackMode::PerResource, 2, "more than 10000 elements, the limit");
    check(CDS, &aggregate(9_000), NackMode::PerResource, 100, " more");
}

/// A key of one or two bytes, and a length of zero, many times.
fn empty_elements(number: usize, count: usize) -> Vec<u8> {
    let key = number << 3 | 2;
    let key = if key < 0x80 { vec![key as u8] } else { vec![key as u8 | 0x80, (key >> 7) as u8] };
    [key, vec![0]].concat().repeat(count)
}

#[test]
fn unused_lists_of_a_cluster() {
    // dns_resolvers, filters, health_checks, transport_socket_matches: messages of up to a kilobyte.
    for number in [8, 18, 40, 43] {
        let cluster = |count| resource(CDS, &[field(1, b"a"), empty_elements(number, count)].concat());
        check(CDS, &cluster(1_000_000), NackMode::PerResource, 2, "more than the limit of 1048576");
        check(CDS, &cluster(300_000), NackMode::PerResource, 2, "more than 10000 elements, the limit");
        check(CDS, &cluster(9_000), NackMode::PerResource, 2000, "must be EDS");
    }
}

#[test]
fn unused_lists_of_a_listener() {
    let of = ResourceType::Listener;
    // filter_chains, listener_filters, access_log.
    for number in [3, 9, 22] {
        let listener = |count| resource(of, &[field(1, b"a"), empty_elements(number, count)].concat());
        let nack = "more than 250000 elements besides routes, the limit";
        check(of, &listener(1_000_000), NackMode::PerResource, 2, nack);
        check(of, &listener(100_000), NackMode::PerResource, 600, "must have an api_listener");
    }
}

#[test]
fn unused_lists_of_routes() {
    let of = ResourceType::RouteConfiguration;
    let nack = "more than 250000 elements besides routes, the limit";
    let configuration = |host: Vec<u8>| resource(of, &[field(1, b"a"), field(2, &host)].concat());
    // Headers to add of a virtual host, of a route, of a weighted cluster.
    let headers = empty_elements(7, 1_000_000);
    check(of, &configuration(headers), NackMode::PerResource, 2, nack);
    let route = field(3, &empty_elements(9, 1_000_000));
    check(of, &configuration(route), NackMode::PerResource, 2, nack);
    let weighted = field(2, &field(3, &field(1, &empty_elements(4, 1_000_000))));
    check(of, &configuration(field(3, &weighted)), NackMode::PerResource, 2, nack);
}
