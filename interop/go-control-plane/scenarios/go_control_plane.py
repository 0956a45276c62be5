"""Our client against a management server on go-control-plane, in the ways that its users run it."""

import pathlib
import sys

from conformance import resources as r
from conformance.testbed import SERVICE, eventually, never, scenario

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from plane import GoControlPlane  # noqa: E402

SOURCE = "go-control-plane"
A99 = {"GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE": "true"}
# How the server is run: the kind of its cache, and of its stream handling.
MODES = {
    "snapshot": dict(cache="snapshot"),
    "snapshot-ordered": dict(cache="snapshot", ordered=True),
    "snapshot-ads": dict(cache="snapshot", ads=True, ordered=True),
    "linear": dict(cache="linear"),
    "linear-ordered": dict(cache="linear", ordered=True),
}


def start(t, mode="snapshot-ordered", **options):
    plane = t.own(GoControlPlane(**MODES[mode], **options))
    t.planes.append(plane)
    return plane


def client_of(t, plane, **options):
    return t.client(bootstrap=t.bootstrap(plane), **options)


def in_modes(name, statement, *modes):
    """Registers a scenario once for each of these modes."""
    def register(function):
        for mode in modes or MODES:
            scenario(f"go_control_plane/{name}-{mode}", f"{statement} Mode: {mode}.", SOURCE)(
                lambda t, mode=mode: function(t, mode))
        return function
    return register


@in_modes("update", "Endpoints that change move the traffic, and no RPC fails.")
def update(t, mode):
    a, b = t.backends("a", "b")
    plane = start(t, mode)
    t.serve(a, plane=plane)
    client = client_of(t, plane)
    client.wait_peers("a")
    plane.set(r.assignment("cluster", r.locality(b)))
    client.wait_peers("b")
    plane.set(r.assignment("cluster", r.locality(a, b)))
    client.wait_peers("a", "b")
    assert set(client.statuses()) == {"OK"}, dict(client.statuses())
    assert plane.streams_seen == 1, "one ADS stream"


@in_modes("priorities", "Traffic moves to the next priority when the first dies, and comes back.")
def priorities(t, mode):
    a, b = t.backends("a", "b")
    plane = start(t, mode)
    plane.set(r.listener(SERVICE, "route"), r.simple_route_config("route", "cluster"), r.eds_cluster("cluster"),
              r.priorities("cluster", [a], [b]))
    client = client_of(t, plane)
    client.wait_peers("a")
    a.kill()
    client.wait_peers("b")
    a.start()
    client.wait_peers("a", timeout=20)


@in_modes("route-flips", "Clusters that are left and wanted again serve each time.",
          "snapshot", "snapshot-ordered", "linear", "linear-ordered")
def route_flips(t, mode):
    a, b = t.backends("a", "b")
    plane = start(t, mode)
    for name, backend in (("one", a), ("two", b)):
        plane.set(r.eds_cluster(name), r.assignment(name, r.locality(backend)))
    plane.set(r.listener(SERVICE, "route"), r.simple_route_config("route", "one"))
    client = client_of(t, plane)
    client.wait_peers("a")
    for _ in range(3):
        plane.set(r.simple_route_config("route", "two"))
        client.wait_peers("b")
        plane.set(r.simple_route_config("route", "one"))
        client.wait_peers("a")
    assert set(client.statuses()) == {"OK"}, dict(client.statuses())


@in_modes("aggregate", "An aggregate of two EDS clusters and a DNS cluster fails over down its list and comes back.",
          "snapshot", "snapshot-ordered", "linear-ordered")
def aggregate(t, mode):
    a, b, c = t.backends("a", "b", "c")
    plane = start(t, mode)
    plane.set(
        r.listener(SERVICE, "route"), r.simple_route_config("route", "top"), r.aggregate_cluster("top", "one", "two", "dns"),
        r.eds_cluster("one"), r.eds_cluster("two"), r.logical_dns_cluster("dns", "localhost", c.port),
        r.assignment("one", r.locality(a)), r.assignment("two", r.locality(b)))
    client = client_of(t, plane)
    client.wait_peers("a")
    a.kill()
    client.wait_peers("b")
    b.kill()
    client.wait_peers("c")
    a.start()
    client.wait_peers("a", timeout=20)
    plane.set(r.aggregate_cluster("top", "dns", "one"))
    client.wait_peers("c")


@scenario("go_control_plane/aggregate-resource", "A list of clusters as a resource (A99) comes wrapped because it has a "
          "TTL; a new order moves the traffic.", "A99; go-control-plane")
def aggregate_resource(t):
    a, b = t.backends("a", "b")
    plane = start(t)
    plane.set(
        r.listener(SERVICE, "route"), r.simple_route_config("route", "top"), r.aggregate_resource_cluster("top", "children"),
        r.aggregate_resource("children", "one", "two"), r.eds_cluster("one"), r.eds_cluster("two"),
        r.assignment("one", r.locality(a)), r.assignment("two", r.locality(b)))
    client = client_of(t, plane, env=A99)
    client.wait_peers("a")
    plane.wait_ack(r.AGGREGATE)
    plane.set(r.aggregate_resource("children", "two", "one"))
    client.wait_peers("b")
    b.kill()
    client.wait_peers("a")


@in_modes("csds", "CSDS shows the versions that go-control-plane gave.", "snapshot-ordered", "linear")
def csds(t, mode):
    a = t.backend("a")
    plane = start(t, mode)
    t.serve(a, plane=plane)
    client = client_of(t, plane)
    client.wait_peers("a")
    for type_url, name in {r.LDS: SERVICE, r.RDS: "route", r.CDS: "cluster", r.EDS: "cluster"}.items():
        sent = plane.seen("response", type_url=type_url)[-1]["version"]
        eventually(lambda: client.resource_status(type_url, name) == "ACKED", f"CSDS to show {name} as ACKED")
        assert client.resource(type_url, name).version_info == sent, client.resource(type_url, name).version_info


@in_modes("rejected-version", "A rejected version, which the server sends again at once, is NACKed about once a second; the "
          "last good one serves, and the next good one is used.", "snapshot", "snapshot-ordered", "linear")
def rejected_version(t, mode):
    a, b = t.backends("a", "b")
    plane = start(t, mode)
    t.serve(a, plane=plane)
    client = client_of(t, plane)
    client.wait_peers("a")
    before = plane.mark()
    bad = r.eds_cluster("cluster")
    bad.ClearField("eds_cluster_config")
    plane.set(bad)
    plane.wait_nack(r.CDS, after=before)
    eventually(lambda: client.resource_status(r.CDS, "cluster") == "NACKED", "CSDS to show the rejected Cluster")
    client.wait_peers("a")
    nacks = lambda: [e for e in plane.seen("request", type_url=r.CDS) if e["error"]]  # noqa: E731
    seen = len(nacks())
    never(lambda: len(nacks()) > seen + 5, "NACKs in three seconds", duration=3.0)
    plane.set(r.eds_cluster("cluster"), r.assignment("cluster", r.locality(b)))
    client.wait_peers("b")
    assert set(client.statuses()) == {"OK"}, dict(client.statuses())


@in_modes("partial-snapshot", "RPCs wait for endpoints that the snapshot does not have yet.",
          "snapshot", "snapshot-ordered", "linear")
def partial_snapshot(t, mode):
    a = t.backend("a")
    plane = start(t, mode)
    plane.set(r.listener(SERVICE, "route"), r.simple_route_config("route", "cluster"), r.eds_cluster("cluster"))
    client = client_of(t, plane, rpc_timeout_sec=20)
    plane.wait("request", lambda e: e["type_url"] == r.EDS, "a request for the endpoints")
    plane.set(r.assignment("cluster", r.locality(a)))
    client.wait_peers("a")
    assert set(client.statuses()) == {"OK"}, dict(client.statuses())


@in_modes("deleted", "A Cluster that leaves the cache makes RPCs fail, and its return mends that.",
          "snapshot", "snapshot-ordered", "linear")
def deleted(t, mode):
    a = t.backend("a")
    plane = start(t, mode)
    t.serve(a, plane=plane)
    client = client_of(t, plane)
    client.wait_peers("a")
    plane.remove(r.CDS, "cluster")
    client.wait_status("UNAVAILABLE")
    plane.set(r.eds_cluster("cluster"))
    client.wait_peers("a")


@scenario("go_control_plane/ads-withholds", "With ads=true a request that does not name all resources of a type gets no "
          "answer: an aggregate's clusters never arrive, and RPCs fail with the name of the missing one.", SOURCE)
def ads_withholds(t):
    a, b = t.backends("a", "b")
    plane = start(t, "snapshot-ads")
    plane.set(
        r.listener(SERVICE, "route"), r.simple_route_config("route", "top"), r.aggregate_cluster("top", "one", "two"),
        r.eds_cluster("one"), r.eds_cluster("two"), r.assignment("one", r.locality(a)), r.assignment("two", r.locality(b)))
    client = client_of(t, plane, rpc_timeout_sec=30)
    client.wait_status("UNAVAILABLE", timeout=25)
    assert not plane.seen("response", type_url=r.CDS), "the server answered"
    assert client.resource_status(r.CDS, "top") == "DOES_NOT_EXIST", client.resource_status(r.CDS, "top")


@scenario("go_control_plane/restart", "A server that restarts with the same version sends nothing again; the client keeps "
          "serving and takes the next version.", SOURCE)
def restart(t):
    a, b = t.backends("a", "b")
    plane = start(t)
    t.serve(a, plane=plane)
    client = client_of(t, plane)
    client.wait_peers("a")
    plane.stop()
    client.wait_peers("a")
    again = start(t, port=plane.port)
    t.serve(a, plane=again)
    again.wait("request", lambda e: e["type_url"] == r.EDS, "the client to come back", timeout=20)
    client.wait_peers("a")
    again.set(r.assignment("cluster", r.locality(b)))
    client.wait_peers("b")
    assert set(client.statuses()) == {"OK"}, dict(client.statuses())


@scenario("go_control_plane/load-reports", "Load reports arrive and count the RPCs.", "A27 LRS")
def load_reports(t):
    plane = start(t)
    t.serve(t.backend("a"), plane=plane, lrs=True)
    client = client_of(t, plane)
    client.wait_peers("a")
    eventually(lambda: sum(e["succeeded"] for e in plane.seen("load", cluster="cluster")) >= 30, "30 RPCs to be reported")
