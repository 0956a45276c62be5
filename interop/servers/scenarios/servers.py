"""gRPC's standard interop cases, plaintext and mTLS: ours through an xDS channel to servers of others, and theirs to our server."""

import pathlib
import sys

from conformance import resources as r
from conformance.testbed import SERVICE, scenario

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import peers  # noqa: E402

CASES = "gRPC interop test descriptions"
SECURITY = "gRPC interop test descriptions; A29"
GROUPS = {
    "unary": ["empty_unary", "large_unary"],
    "streaming": ["client_streaming", "server_streaming", "ping_pong", "empty_stream"],
    "compression": ["client_compressed_unary", "server_compressed_unary", "client_compressed_streaming",
                    "server_compressed_streaming"],
    "metadata": ["custom_metadata", "large_metadata"],
    "status": ["status_code_and_message", "special_status_message", "unimplemented_method", "unimplemented_service"],
    "timing": ["cancel_after_begin", "cancel_after_first_response", "timeout_on_sleeping_server"],
}
# What a peer's server cannot do; the reasons are in README.md.
NOT_AT_THEIR_SERVER = {
    "grpcio": {"client_compressed_unary", "client_compressed_streaming"},
    "grpc-go": {"client_compressed_unary", "client_compressed_streaming", "server_compressed_streaming"},
    "grpc-java": {"client_compressed_unary", "client_compressed_streaming", "server_compressed_streaming"},
}
# What a peer's client does not have.
NOT_FROM_THEIR_CLIENT = {
    "grpcio": {"server_compressed_streaming"},
    "grpc-go": {"server_compressed_streaming"},
    "grpc-java": {"large_metadata"},
}


def ours_to_theirs(t, peer, cases, mtls, stranger=False):
    """Our cases through an xDS channel to the server of a peer."""
    security = peers.Security(t, mtls, stranger)
    server = t.own(peers.PeerServer(peer, security))
    tls, providers = None, {}
    if mtls:
        tls = r.upstream_tls(identity="certs", sans=[r.san(exact=peers.SERVER_NAME)])
        providers = {"certificate_providers": {"certs": security.client.provider()}}
    t.serve(server, tls=tls)
    peers.run_ours(t, t.bootstrap(**providers), f"xds:///{SERVICE}", cases, mtls)


def theirs_to_ours(t, peer, cases, mtls, stranger=False):
    """The cases of a peer's client against our server."""
    t.may_stay_away = True  # no xDS here
    security = peers.Security(t, mtls, stranger)
    server = t.own(peers.OurServer(t, security))
    peers.run_theirs(peer, server.address, cases, security)


def register(direction, function, statement, left_out):
    for peer in peers.PRESENT:
        for mtls in (False, True):
            transport = "mtls" if mtls else "plaintext"
            for group, names in GROUPS.items():
                cases = [name for name in names if name not in left_out[peer]]
                if not cases:
                    continue
                scenario(f"servers/{direction}-{transport}-{group}-{peer}",
                         f"{statement.format(peer)}, {transport}: {', '.join(cases)}.", SECURITY if mtls else CASES)(
                    lambda t, peer=peer, cases=cases, mtls=mtls: function(t, peer, cases, mtls))


register("to", ours_to_theirs, "Our cases through an xDS channel to the server of {}", NOT_AT_THEIR_SERVER)
register("from", theirs_to_ours, "The cases of {}'s client against our server", NOT_FROM_THEIR_CLIENT)


def refused(function):
    """A client whose certificate is of another authority than the server's must fail."""
    def run(t, peer):
        try:
            function(t, peer, ["empty_unary"], mtls=True, stranger=True)
        except AssertionError as failure:
            assert "not over" not in str(failure), failure
            return
        raise AssertionError("the server accepted a client of another authority")
    return run


for name in peers.PRESENT:
    scenario(f"servers/to-mtls-stranger-{name}", f"The server of {name} turns our channel away if its certificate is of another "
             "authority, and the RPC fails at once.", SECURITY)(lambda t, peer=name: refused(ours_to_theirs)(t, peer))
    scenario(f"servers/from-mtls-stranger-{name}", f"Our server turns the client of {name} away if its certificate is of another "
             "authority.", SECURITY)(lambda t, peer=name: refused(theirs_to_ours)(t, peer))
