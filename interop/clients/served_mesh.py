"""`proxyless serve` on a file of raw resources that scenarios change: the part of the kit's ControlPlane that they need."""

import json
import os
import re
import subprocess
import threading
import time

from google.protobuf import json_format

from conformance.resources import name_of, type_url_of

BINARY = os.environ.get("PROXYLESS", "target/release/proxyless")


class ServedMesh:
    """One server process. The file is replaced in one step."""

    def __init__(self, folder):
        folder.mkdir()
        self.path = folder / "mesh.json"
        self._resources = {}
        self._process = None
        self._lines = []

    def set(self, *resources):
        """Adds or replaces resources."""
        for resource in resources:
            body = json_format.MessageToDict(resource, preserving_proto_field_name=True)
            self._resources[type_url_of(resource), name_of(resource)] = {"@type": type_url_of(resource), **body}
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps({"resources": list(self._resources.values())}))
        draft.rename(self.path)

    def start(self):
        self._process = subprocess.Popen(
            [BINARY, "serve", "--listen", "127.0.0.1:0", str(self.path)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self._read, daemon=True).start()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            found = re.search(r"serving .* at (127\.0\.0\.1:\d+)", "".join(self._lines))
            if found:
                self.address = found[1]
                return self
            assert self._process.poll() is None, f"proxyless serve ended: {''.join(self._lines)}"
            time.sleep(0.02)
        raise AssertionError(f"proxyless serve does not listen: {''.join(self._lines)}")

    def stop(self):
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)

    @property
    def streams_seen(self):
        """Whether a client has connected: serve prints what it sends to clients."""
        return sum("ACK" in line for line in self._lines)

    def _read(self):
        for line in self._process.stdout:
            self._lines.append(line)
