"""gRPC's interop servers and clients of other languages, and ours.

Each peer is a program with two modes and the same flags:

    PROGRAM server [TLS flags]                        prints its port
    PROGRAM client -server ADDRESS [TLS flags] CASE...  prints `PASSED CASE` for each case; exits with 1 at the first that fails

TLS flags: -certificate, -key and -ca, each with a PEM file. With them both sides show certificates; without, plaintext.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

from conformance.certs import Authority

HERE = pathlib.Path(__file__).resolve().parent
BUILD = "target/interop"
RELEASE = os.environ.get("PROXYLESS_RELEASE", "target/release")
JARS = f"{BUILD}/servers-grpc-java"
COMMANDS = {
    "grpcio": [sys.executable, str(HERE / "grpcio" / "peer.py")],
    "grpc-go": [f"{BUILD}/servers-grpc-go"],
    # The two options halve the time that a short run takes.
    "grpc-java": ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{JARS}/classes:{JARS}/lib/*", "Peer"],
}
# Those whose toolchain is missing are left out by the script `run`.
PRESENT = [p for p in os.environ.get("INTEROP_PEERS", ",".join(COMMANDS)).split(",") if p]
SERVER_NAME = "server.interop.example"


class Security:
    """Certificates of one authority for a client and a server in a scenario's folder, or none of them (plaintext).

    The certificate of a stranger as the client is of another authority, which the server does not know.
    """

    def __init__(self, t, mtls, stranger=False):
        self.mtls = mtls
        if mtls:
            ca = Authority("interop-ca")
            issuer = Authority("another-ca") if stranger else ca
            self.client = t.files("client", ca=ca, identity=issuer.issue("client", uri=["spiffe://interop.example/client"]))
            self.server = t.files("server", ca=ca, identity=ca.issue("server", dns=[SERVER_NAME], ip=["127.0.0.1"]))

    def flags(self, side):
        """The TLS flags of a peer."""
        if not self.mtls:
            return []
        files = getattr(self, side)
        return ["-certificate", files.path("cert"), "-key", files.path("key"), "-ca", files.path("ca")]

    def our_server_flags(self):
        if not self.mtls:
            return []
        path = self.server.path
        return ["--secure_mode=true", f"--certificate_file={path('cert')}", f"--private_key_file={path('key')}",
                f"--ca_certificate_file={path('ca')}"]


class PeerServer:
    """The interop server of a peer; an endpoint, with `host` and `port`."""

    def __init__(self, peer, security):
        self.name, self.host = peer, "127.0.0.1"
        self._process = subprocess.Popen(
            [*COMMANDS[peer], "server", *security.flags("server")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True)
        self._first = ""
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        reader.join(30)
        if not self._first.strip().isdigit():
            self.stop()
            raise AssertionError(f"the server of {peer} printed {self._first!r} instead of its port")
        self.port = int(self._first)

    def _read(self):
        self._first = self._process.stdout.readline()

    def stop(self):
        _end(self._process)


class OurServer:
    """Our interop server."""

    def __init__(self, t, security):
        self.port, maintenance = t.ports.take(), t.ports.take()
        self.address = f"127.0.0.1:{self.port}"
        self._process = subprocess.Popen(
            [f"{RELEASE}/xds-interop-server", f"--port={self.port}", f"--maintenance_port={maintenance}", "--hostname=ours",
             *security.our_server_flags()], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 15
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise AssertionError("our server does not listen") from None
                time.sleep(0.03)

    def stop(self):
        _end(self._process)


def _end(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_ours(t, bootstrap, target, cases, mtls):
    """Runs our cases through an xDS channel."""
    path = t.write("cases-bootstrap.json", json.dumps(bootstrap).encode())
    _run([f"{RELEASE}/interop-cases", f"--server={target}", f"--test-case={','.join(cases)}",
          f"--secure-mode={'true' if mtls else 'false'}"], cases, dict(os.environ, GRPC_XDS_BOOTSTRAP=path))


def run_theirs(peer, address, cases, security):
    """Runs a peer's cases against a server."""
    _run([*COMMANDS[peer], "client", "-server", address, *security.flags("client"), *cases], cases)


def _run(command, cases, env=None):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=env, timeout=50)
    except subprocess.TimeoutExpired as problem:
        raise AssertionError(f"{cases}: not over after 50 s: {str(problem.output)[-1500:]}") from None
    passed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("PASSED ")]
    missing = sorted(set(cases) - set(passed))
    assert done.returncode == 0 and not missing, f"{missing or cases}: exit code {done.returncode}: {done.stdout[-1500:]}"
