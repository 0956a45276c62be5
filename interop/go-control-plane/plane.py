"""Starts the management server of this folder and scripts it: the part of the kit's ControlPlane that scenarios need."""

import base64
import json
import os
import subprocess
import threading
import time

from envoy.service.discovery.v3 import discovery_pb2

from conformance.resources import name_of, pack, type_url_of

BINARY = os.environ.get("GO_CONTROL_PLANE", "target/interop/go-control-plane")


class GoControlPlane:
    """One server process. Every change of resources is a new version."""

    def __init__(self, cache="snapshot", ads=False, ordered=False, port=0):
        self.linear = cache == "linear"
        self.events = []
        self._answers = {}
        self._changed = threading.Condition()
        self._resources = {}  # (type URL, name) -> entry of a command
        self._version = 0
        self._ids = 0
        self._process = subprocess.Popen(
            [BINARY, f"-cache={cache}", f"-ads={_bool(ads)}", f"-ordered={_bool(ordered)}", f"-port={port}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = json.loads(self._process.stdout.readline())["port"]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._read, daemon=True).start()

    def stop(self):
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    # -- state --------------------------------------------------------------

    def set(self, *resources):
        """Adds or replaces resources. A (type URL, name, Any) triple is sent in a Resource wrapper."""
        changed = [_entry(resource) for resource in resources]
        for entry in changed:
            self._resources[entry["type_url"], entry["name"]] = entry
        self._apply(changed, [])

    def remove(self, type_url, *names):
        for name in names:
            del self._resources[type_url, name]
        self._apply([], [{"type_url": type_url, "name": name} for name in names])

    def _apply(self, changed, removed):
        self._version += 1
        if self.linear:
            self._command(command="update", resources=changed, remove=removed)
        else:
            self._command(command="snapshot", version=str(self._version), resources=list(self._resources.values()))

    def _command(self, **command):
        self._ids += 1
        self._process.stdin.write(json.dumps({"id": self._ids, **command}) + "\n")
        self._process.stdin.flush()
        error = self._wait(lambda: self._answers.get(self._ids), "the answer to a command")["error"]
        assert not error, f"go-control-plane: {error}"

    # -- observation --------------------------------------------------------

    @property
    def streams_seen(self):
        return len(self.seen("open"))

    def seen(self, event, **fields):
        with self._changed:
            return [e for e in self.events if e.get("event") == event and all(e.get(k) == v for k, v in fields.items())]

    def mark(self):
        with self._changed:
            return len(self.events)

    def wait(self, event, match=lambda e: True, what=None, timeout=10.0, after=0):
        """The first event of this kind (from index `after`) that matches."""
        def find():
            return next((e for e in self.events[after:] if e.get("event") == event and match(e)), None)
        return self._wait(find, what or f"an event {event}", timeout)

    def wait_ack(self, type_url, timeout=10.0, after=0):
        return self.wait("request", lambda e: e["type_url"] == type_url and e["nonce"] and not e["error"],
                         f"an ACK of {type_url}", timeout, after)

    def wait_nack(self, type_url, timeout=10.0, after=0):
        return self.wait("request", lambda e: e["type_url"] == type_url and e["error"],
                         f"a NACK of {type_url}", timeout, after)

    def _wait(self, condition, what, timeout=10.0):
        deadline = time.monotonic() + timeout
        with self._changed:
            while (value := condition()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"go-control-plane: timed out waiting for {what}")
                self._changed.wait(min(left, 0.25))
            return value

    def _read(self):
        for line in self._process.stdout:
            entry = json.loads(line)
            with self._changed:
                if "id" in entry:
                    self._answers[entry["id"]] = entry
                else:
                    self.events.append(entry)
                self._changed.notify_all()


def _entry(resource):
    wrapped = isinstance(resource, tuple)
    if wrapped:
        type_url, name, value = resource
        value = discovery_pb2.Resource.FromString(value.value).resource  # the server makes a wrapper of its own
    else:
        type_url, name, value = type_url_of(resource), name_of(resource), pack(resource)
    return {"type_url": type_url, "name": name, "value": base64.b64encode(value.value).decode(), "wrapped": wrapped}


def _bool(value):
    return "true" if value else "false"
