"""Starts istiod's discovery server of this folder on a folder of Istio's resources that scenarios change."""

import json
import os
import subprocess
import threading
import time

from conformance import istio

BINARY = os.environ.get("ISTIOD", "target/interop/istio")


class Istiod:
    """One server process. The configuration is one file, replaced in one step."""

    def __init__(self, t):
        self.t = t
        self.folder = t.folder / "istio"
        self.folder.mkdir()
        self.address = f"unix://{t.folder / 'XDS'}"
        self._lines = []
        self._log = t.folder / "istiod.log"
        self._process = None

    def apply(self, *resources):
        """The resources of the mesh: those of before are gone."""
        draft = self.t.folder / "istio.draft"
        draft.write_text("\n---\n".join(json.dumps(resource) for resource in resources))
        draft.rename(self.folder / "mesh.yaml")

    def start(self):
        self._process = subprocess.Popen(
            [BINARY, "-config", str(self.folder), "-socket", self.address.removeprefix("unix://")], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=open(self._log, "wb"), text=True, cwd=self.t.folder)
        threading.Thread(target=self._read, daemon=True).start()
        deadline = time.monotonic() + 40
        while not any(line.startswith("READY") for line in self._lines):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"istiod does not serve: {self._log.read_text()[-1500:]}")
            time.sleep(0.05)
        return self

    def stop(self):
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def streams_seen(self):
        """The agent's socket has no counter: that RPCs flow is the sign that the client came."""
        return 1

    def client(self, target=istio.TARGET, **options):
        bootstrap = istio.bootstrap(self.address, str(self.t.folder))
        # istiod rejects the node if this is the boolean that the kit has.
        bootstrap["node"]["metadata"]["UNPRIVILEGED_POD"] = "true"
        return self.t.client(target=target, bootstrap=bootstrap, **options)

    def _read(self):
        for line in self._process.stdout:
            self._lines.append(line)


def _resource(kind, name, spec, group="networking.istio.io/v1"):
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, "namespace": istio.NAMESPACE}, "spec": spec}


def service(**versions):
    """The service, with backends by version: each version is a label of its endpoints."""
    endpoints = [{"address": "127.0.0.1", "ports": {"grpc": backend.port}, "labels": {"app": "echo", "version": version},
                  "serviceAccount": "echo"} for version, backends in versions.items() for backend in backends]
    return _resource("ServiceEntry", "echo", {
        "hosts": [istio.HOST], "location": "MESH_INTERNAL", "resolution": "STATIC", "endpoints": endpoints,
        "ports": [{"number": istio.PORT, "name": "grpc", "protocol": "GRPC"}]})


def destination_rule(policy=None, subsets=()):
    spec = {"host": istio.HOST, "subsets": [{"name": name, "labels": {"version": name}} for name in subsets]}
    if policy:
        spec["trafficPolicy"] = policy
    return _resource("DestinationRule", "echo", spec)


def virtual_service(weights):
    """Routes to subsets by weight."""
    route = [{"destination": {"host": istio.HOST, "subset": subset}, "weight": weight} for subset, weight in weights.items()]
    return _resource("VirtualService", "echo", {"hosts": [istio.HOST], "http": [{"route": route}]})
