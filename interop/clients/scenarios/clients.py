"""Clients of other languages get their configuration from `proxyless serve` and fail over, and their CSDS agrees with ours."""

import pathlib
import sys

from conformance import resources as r
from conformance.testbed import SERVICE, eventually, scenario

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import peers  # noqa: E402
from served_mesh import ServedMesh  # noqa: E402

SOURCE = "proxyless serve"


def with_each_peer(name, statement):
    """Registers a scenario once for each peer that is present."""
    def register(function):
        for peer in peers.PRESENT:
            scenario(f"clients/{name}-{peer}", f"{statement} Client: {peer}.", SOURCE)(
                lambda t, peer=peer: function(t, peer))
        return function
    return register


def mesh(t, *resources):
    plane = t.own(ServedMesh(t.folder / "mesh"))
    t.planes.append(plane)
    plane.set(*resources)
    return plane.start()


@with_each_peer("update", "Endpoints that change in the file move the traffic.")
def update(t, peer):
    a, b = t.backends("a", "b")
    plane = mesh(t, r.listener(SERVICE, "route"), r.simple_route_config("route", "cluster"), r.eds_cluster("cluster"),
                 r.assignment("cluster", r.locality(a)))
    client = peers.start(t, peer, plane, f"xds:///{SERVICE}")
    client.wait_peers("a", timeout=20)
    plane.set(r.assignment("cluster", r.locality(b)))
    client.wait_peers("b", timeout=20)
    plane.set(r.simple_route_config("route", "other"), r.eds_cluster("other"), r.assignment("other", r.locality(a)))
    client.wait_peers("a", timeout=20)
    assert set(client.statuses()) == {"OK"}, dict(client.statuses())


@with_each_peer("failover", "Traffic moves to the next priority when the first dies, and comes back.")
def failover(t, peer):
    a, b = t.backends("a", "b")
    plane = mesh(t, r.listener(SERVICE, "route"), r.simple_route_config("route", "cluster"), r.eds_cluster("cluster"),
                 r.priorities("cluster", [a], [b]))
    client = peers.start(t, peer, plane, f"xds:///{SERVICE}")
    client.wait_peers("a", timeout=20)
    a.kill()
    client.wait_peers("b", timeout=30)
    a.start()
    client.wait_peers("a", timeout=40)


@with_each_peer("aggregate", "An aggregate fails over from an EDS cluster to a DNS cluster.")
def aggregate(t, peer):
    a, b = t.backends("a", "b")
    plane = mesh(t, r.listener(SERVICE, "route"), r.simple_route_config("route", "top"),
                 r.aggregate_cluster("top", "one", "dns"), r.eds_cluster("one"), r.assignment("one", r.locality(a)),
                 r.logical_dns_cluster("dns", "localhost", b.port))
    client = peers.start(t, peer, plane, f"xds:///{SERVICE}")
    client.wait_peers("a", timeout=20)
    a.kill()
    client.wait_peers("b", timeout=30)


@with_each_peer("csds", "CSDS of the peer and of our client show the same resources with the same versions and contents.")
def csds(t, peer):
    a = t.backend("a")
    plane = mesh(t, r.listener(SERVICE, "route"), r.simple_route_config("route", "cluster"), r.eds_cluster("cluster"),
                 r.assignment("cluster", r.locality(a)))
    theirs = peers.start(t, peer, plane, f"xds:///{SERVICE}")
    ours = t.client(bootstrap=t.bootstrap(plane))
    theirs.wait_peers("a", timeout=20)
    ours.wait_peers("a")
    names = {r.LDS: SERVICE, r.RDS: "route", r.CDS: "cluster", r.EDS: "cluster"}
    eventually(lambda: set(ours.configs()) == set(theirs.configs()) == set(names.items()), "CSDS of both to have the same resources")
    for type_url, name in names.items():
        for client in (ours, theirs):
            eventually(lambda: client.resource_status(type_url, name) == "ACKED", f"CSDS to show {name} as ACKED")
        one, other = ours.resource(type_url, name), theirs.resource(type_url, name)
        assert one.version_info == other.version_info, (name, one.version_info, other.version_info)
        assert one.xds_config.type_url == other.xds_config.type_url, (one.xds_config.type_url, other.xds_config.type_url)
        kind = {r.LDS: r.listener_pb2.Listener, r.RDS: r.route_pb2.RouteConfiguration, r.CDS: r.cluster_pb2.Cluster,
                r.EDS: r.endpoint_pb2.ClusterLoadAssignment}[type_url]
        assert kind.FromString(one.xds_config.value) == kind.FromString(other.xds_config.value), f"{name} differs"
