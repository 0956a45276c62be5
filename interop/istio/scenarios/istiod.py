"""istiod's discovery server, with its gRPC generator, as the control plane of our client."""

import pathlib
import sys

from conformance import istio
from conformance import resources as r
from conformance.certs import Authority
from conformance.testbed import about, eventually, scenario
from conformance.tls import ServerTls

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import istiod as pilot  # noqa: E402

GENERATOR = "Istio: pilot/pkg/networking/grpcgen"


def mesh(t, *resources):
    plane = t.own(pilot.Istiod(t))
    t.planes.append(plane)
    plane.apply(*resources)
    return plane.start()


def all_acked(client):
    entries = client.configs()
    assert entries, "CSDS is empty"
    for type_url, name in entries:
        eventually(lambda: client.resource_status(type_url, name) == "ACKED", f"{name} to be ACKED")


@scenario("istiod/service", "RPCs reach the endpoints of a service, and follow them when they change.", GENERATOR)
def service(t):
    a, b = t.backends("a", "b")
    plane = mesh(t, pilot.service(v1=[a]))
    client = plane.client()
    client.wait_peers("a", timeout=20)
    plane.apply(pilot.service(v1=[a, b]))
    client.wait_peers("a", "b", timeout=20)
    all_acked(client)
    assert set(client.statuses()) == {"OK"}, dict(client.statuses())


@scenario("istiod/subsets", "Weighted routes of a VirtualService to subsets of a DestinationRule are followed, also when they "
          "change.", GENERATOR)
def subsets(t):
    a, b = t.backends("a", "b")
    rule = pilot.destination_rule(subsets=("v1", "v2"))
    plane = mesh(t, pilot.service(v1=[a], v2=[b]), rule, pilot.virtual_service({"v1": 80, "v2": 20}))
    client = plane.client(qps=150)
    client.wait_peers("a", "b", count=60, timeout=20)
    about(client.stats(300, 8).share("a"), 0.8, 0.1)
    plane.apply(pilot.service(v1=[a], v2=[b]), rule, pilot.virtual_service({"v2": 100}))
    client.wait_peers("b", timeout=20)
    all_acked(client)


@scenario("istiod/circuit-breaker", "http2MaxRequests of a DestinationRule limits the RPCs in flight.", GENERATOR)
def circuit_breaker(t):
    a = t.backend("a")
    plane = mesh(t, pilot.service(v1=[a]), pilot.destination_rule({"connectionPool": {"http": {"http2MaxRequests": 4}}}))
    client = plane.client()
    client.wait_peers("a", count=4, timeout=20)
    a.hang()
    eventually(lambda: a.in_flight == 4, "four RPCs to hang")
    client.wait_status("UNAVAILABLE")
    assert a.peak <= 4, a.peak


@scenario("istiod/mutual-tls", "ISTIO_MUTUAL of a DestinationRule is mTLS with the certificates of the agent, and only the "
          "service account of the endpoints is accepted.", GENERATOR)
def mutual_tls(t):
    ca = Authority("istio-ca")
    def identity(account):
        return ca.issue(account, uri=[f"spiffe://cluster.local/ns/{istio.NAMESPACE}/sa/{account}"])
    right = t.backend("right", tls=ServerTls(identity("echo"), ca))
    wrong = t.backend("wrong", tls=ServerTls(identity("other"), ca))
    own = identity("client")
    t.write("cert-chain.pem", own.chain)
    t.write("key.pem", own.key)
    t.write("root-cert.pem", ca.pem)
    plane = mesh(t, pilot.service(v1=[right, wrong]), pilot.destination_rule({"tls": {"mode": "ISTIO_MUTUAL"}}))
    client = plane.client(secure_mode=True)
    client.wait_peers("right", timeout=20)
    assert wrong.count == 0, "a backend of another service account was used"
    names = {name for call in right.calls for name in call.names}
    assert f"spiffe://cluster.local/ns/{istio.NAMESPACE}/sa/client" in names, names
    all_acked(client)


@scenario("istiod/unknown-service", "A name that the mesh does not have fails with UNAVAILABLE.", GENERATOR, timeout=90)
def unknown_service(t):
    plane = mesh(t, pilot.service(v1=[t.backend("a")]))
    name = f"nobody.{istio.NAMESPACE}.svc.cluster.local:{istio.PORT}"
    client = plane.client(target=f"xds:///{name}")
    eventually(lambda: client.resource_status(r.LDS, name) == "DOES_NOT_EXIST", "the Listener to be missing", timeout=40)
    client.wait_status("UNAVAILABLE")
