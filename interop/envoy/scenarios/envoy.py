"""Envoy beside our client on one control plane, and Envoy between our client and its backends."""

import pathlib
import socket
import sys

import grpc
import interop_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from google.protobuf import json_format

from conformance import resources as r
from conformance import rpc
from conformance.testbed import SERVICE, eventually, scenario

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent), str(pathlib.Path(__file__).resolve().parents[2] / "clients")]
from proxy import Envoy  # noqa: E402
from served_mesh import ServedMesh  # noqa: E402

SOURCE = "proxyless serve"


def mesh(t, *resources):
    plane = t.own(ServedMesh(t.folder / "mesh"))
    t.planes.append(plane)
    plane.set(*resources)
    return plane.start()


def http2(cluster):
    """Envoy speaks HTTP/1.1 to clusters that do not ask for HTTP/2; gRPC ignores the field."""
    options = http_protocol_options_pb2.HttpProtocolOptions()
    options.explicit_http_config.http2_protocol_options.SetInParent()
    cluster.typed_extension_protocol_options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].CopyFrom(r.pack(options))
    return cluster


def through(envoy):
    """The backends that answer 20 RPCs sent straight to Envoy, and None for those that fail."""
    with grpc.insecure_channel(f"{envoy.host}:{envoy.port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = rpc.unary_stub(channel, "/grpc.testing.TestService/UnaryCall", interop_pb2.SimpleResponse)
        peers = set()
        for _ in range(20):
            try:
                _, outcome = call.with_call(interop_pb2.SimpleRequest(), timeout=5)
                peers.add(dict(outcome.initial_metadata())["hostname"])
            except grpc.RpcError:
                peers.add(None)
        return peers


def listens(envoy):
    try:
        socket.create_connection((envoy.host, envoy.port), 0.5).close()
        return True
    except OSError:
        return False


def wait_both(client, envoy, *names):
    client.wait_peers(*names, timeout=20)
    eventually(lambda: through(envoy) == set(names), f"Envoy to send RPCs to {names}", timeout=20)


@scenario("envoy/same-places", "An Envoy and a proxyless client with one set of resources, among them an aggregate with "
          "CLUSTER_PROVIDED, send traffic to the same places, through updates and failover.", "A37, A75; Envoy")
def same_places(t):
    a, b, c = t.backends("a", "b", "c")
    top = r.aggregate_cluster("top", "one", "two")
    top.lb_policy = r.cluster_pb2.Cluster.CLUSTER_PROVIDED
    top.connect_timeout.seconds = 1
    plane = mesh(t, r.listener(SERVICE, "route"), r.simple_route_config("route", "top"), top,
                 http2(r.eds_cluster("one")), r.assignment("one", r.locality(a)),
                 http2(r.eds_cluster("two")), r.assignment("two", r.locality(c)))
    client = t.client(bootstrap=t.bootstrap(plane))
    envoy = t.own(Envoy(t, plane, "route")).start()
    wait_both(client, envoy, "a")
    plane.set(r.assignment("one", r.locality(a, b)))
    wait_both(client, envoy, "a", "b")
    plane.set(r.assignment("one"))
    wait_both(client, envoy, "c")
    plane.set(r.assignment("one", r.locality(b)))
    wait_both(client, envoy, "b")


@scenario("envoy/weights", "An Envoy and a proxyless client follow the same change of routes between clusters.", "A28; Envoy")
def weights(t):
    a, b = t.backends("a", "b")
    plane = mesh(t, r.listener(SERVICE, "route"), r.simple_route_config("route", "one"),
                 http2(r.eds_cluster("one")), r.assignment("one", r.locality(a)),
                 http2(r.eds_cluster("two")), r.assignment("two", r.locality(b)))
    client = t.client(bootstrap=t.bootstrap(plane))
    envoy = t.own(Envoy(t, plane, "route")).start()
    wait_both(client, envoy, "a")
    split = r.route_config("route", r.virtual_host(["*"], r.route(weighted={"one": 50, "two": 50})))
    plane.set(split)
    wait_both(client, envoy, "a", "b")
    plane.set(r.simple_route_config("route", "two"))
    wait_both(client, envoy, "b")


def fronted(t):
    """A client whose only endpoint is an Envoy in front of the backends a and b."""
    a, b = t.backends("a", "b")
    # Envoy takes all clusters, and waits 15 seconds for endpoints that do not come: the front has none until Envoy listens.
    plane = mesh(t, r.listener(SERVICE, "to-front"), r.simple_route_config("to-front", "front"), r.eds_cluster("front"),
                 r.assignment("front"), r.simple_route_config("route", "one"), http2(r.eds_cluster("one")), r.assignment("one", r.locality(a, b)))
    envoy = t.own(Envoy(t, plane, "route")).start()
    plane.set(r.assignment("front", r.locality(envoy)))
    return a, b, plane, envoy


@scenario("envoy/fronted", "RPCs reach backends behind an Envoy, and its 503 for dead ones is UNAVAILABLE.",
          "gRPC over HTTP/2; Envoy")
def behind(t):
    a, b, plane, envoy = fronted(t)
    client = t.client(bootstrap=t.bootstrap(plane))
    client.wait_peers("a", "b")
    a.kill()
    b.kill()
    client.wait_status("UNAVAILABLE", timeout=20)
    a.start()
    b.start()
    client.wait_peers("a", "b", timeout=20)


@scenario("envoy/drained", "An Envoy that drains (GOAWAY) while another takes over fails no RPC.", "A6 transparent retries; Envoy")
def drained(t):
    a, b, plane, first = fronted(t)
    client = t.client(bootstrap=t.bootstrap(plane), qps=100)
    client.wait_peers("a", "b")
    before = client.statuses()  # with failures, if the client has seen the front without endpoints
    second = t.own(Envoy(t, plane, "route", node="second")).start()
    plane.set(r.assignment("front", r.locality(first, second)))
    client.wait_peers("a", "b")
    first.drain()
    eventually(lambda: first.counter("http.in.downstream_cx_drain_close") > 0, "Envoy to send GOAWAY")
    eventually(lambda: not listens(first), "Envoy to close its port")
    client.wait_peers("a", "b", count=100)
    plane.set(r.assignment("front", r.locality(second)))
    client.wait_peers("a", "b", count=100)
    since = client.statuses() - before
    assert set(since) == {"OK"}, dict(since)


@scenario("envoy/config-dump", "Envoy's config dump and CSDS of our client show the same clusters, routes and endpoints, with the "
          "same versions and contents.", "CSDS; Envoy")
def config_dump(t):
    a, b = t.backends("a", "b")
    top = r.aggregate_cluster("top", "one", "two")
    top.lb_policy = r.cluster_pb2.Cluster.CLUSTER_PROVIDED
    plane = mesh(t, r.listener(SERVICE, "route"), r.simple_route_config("route", "top"), top,
                 http2(r.eds_cluster("one")), r.assignment("one", r.locality(a)),
                 http2(r.eds_cluster("two")), r.assignment("two", r.locality(b)))
    client = t.client(bootstrap=t.bootstrap(plane))
    envoy = t.own(Envoy(t, plane, "route")).start()
    wait_both(client, envoy, "a")
    plane.set(r.assignment("one", r.locality(b)))
    wait_both(client, envoy, "b")
    ours = {key: entry for key, entry in client.configs().items() if key[0] != r.LDS}
    # Envoy shows an empty assignment for the aggregate itself.
    theirs = {key: entry for key, entry in envoy.resources().items() if key != (r.EDS, "top")}
    assert set(ours) == set(theirs), (sorted(ours), sorted(theirs))
    for key, (version, body) in theirs.items():
        kind = {r.RDS: r.route_pb2.RouteConfiguration, r.CDS: r.cluster_pb2.Cluster,
                r.EDS: r.endpoint_pb2.ClusterLoadAssignment}[key[0]]
        mine = kind.FromString(ours[key].xds_config.value)
        if key[0] != r.EDS:
            assert ours[key].version_info == version, (key, ours[key].version_info, version)
            assert mine == json_format.ParseDict(body, kind(), ignore_unknown_fields=True), (key, mine, body)
        else:
            # Envoy shows the endpoints that it uses: with its own defaults, and without the version.
            shown = json_format.ParseDict(body, kind(), ignore_unknown_fields=True)
            assert addresses(mine) == addresses(shown), (key, mine, shown)


def addresses(assignment):
    """Each endpoint of an assignment, by priority and locality."""
    return {(group.priority, group.locality.zone, endpoint.endpoint.address.socket_address.port_value)
            for group in assignment.endpoints for endpoint in group.lb_endpoints}
