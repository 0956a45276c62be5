"""xDS clients of other languages, and the client that reads what they print.

Each prints a JSON object per RPC, {"peer": name} or {"status": code}, and serves CSDS on its stats port; grpcio's is the kit's
reference client, which has the whole contract.
"""

import collections
import json
import os
import time

from conformance.client import Client, ClientSpec, Stats

BUILD = "target/interop"
PEERS = {
    "grpcio": ClientSpec.reference(),
    "grpc-go": ClientSpec([f"{BUILD}/client-grpc-go"]),
    "grpc-java": ClientSpec(["java", "-cp", f"{BUILD}/grpc-java/classes:{BUILD}/grpc-java/lib/*", "InteropClient"]),
    "grpc-js": ClientSpec(["node", f"{BUILD}/grpc-js/client.js"]),
}
# Those whose toolchain is missing are left out by the script `run`.
PRESENT = [p for p in os.environ.get("INTEROP_PEERS", ",".join(PEERS)).split(",") if p]


def start(t, peer, plane, target):
    """Starts the client of a peer, and waits until its stats port is open."""
    kind = Client if PEERS[peer].is_reference else LineClient
    client = kind(PEERS[peer], t.folder, t.ports.take(), t.bootstrap(plane), target, qps=50)
    t.clients.append(client)
    return client.wait_started(timeout=30)


class LineClient(Client):
    """A client whose RPCs are read from its output."""

    def _outcomes(self, offset=0):
        """The RPCs that ended after this offset of the output, and the offset of the next line."""
        with open(self.log_path, "rb") as log:
            log.seek(offset)
            data = log.read()
        data = data[: data.rfind(b"\n") + 1]
        outcomes = [json.loads(line) for line in data.splitlines() if line.startswith(b'{"')]
        return outcomes, offset + len(data)

    def stats(self, count=20, timeout=5, metadata_keys=()):
        _, offset = self._outcomes()
        deadline = time.monotonic() + timeout
        while len(self._outcomes(offset)[0]) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        outcomes = self._outcomes(offset)[0][:count]
        peers = collections.Counter(o["peer"] for o in outcomes if "peer" in o)
        return Stats(peers, len(outcomes) - sum(peers.values()), {}, {})

    def statuses(self, method=None, timeout=10):
        return collections.Counter("OK" if "peer" in o else o["status"] for o in self._outcomes()[0])
