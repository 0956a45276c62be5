"""An Envoy process with one listener, whose routes, clusters and endpoints come from a management server."""

import json
import os
import socket
import subprocess
import time
import urllib.request

BINARY = os.environ.get("ENVOY", "target/interop/envoy/bin/envoy")
_HTTP2 = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    "explicit_http_config": {"http2_protocol_options": {}}}}

# The lists of a config dump, and the field of their entries that has the resource.
_DYNAMIC = {"dynamic_active_clusters": "cluster", "dynamic_route_configs": "route_config",
            "dynamic_endpoint_configs": "endpoint_config"}


class Envoy:
    """`host` and `port` are where its listener is, so that it can be an endpoint."""

    def __init__(self, t, plane, route, node="envoy"):
        self.name = node
        self.host, self.port, self.admin_port = "127.0.0.1", t.ports.take(), t.ports.take()
        self._config = t.folder / f"{node}.json"
        self._config.write_text(json.dumps(_config(plane, route, node, self.port, self.admin_port)))
        self._log = open(t.folder / f"{node}.log", "wb")
        self._process = None

    def start(self):
        self._process = subprocess.Popen(
            [BINARY, "-c", str(self._config), "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning",
             "--drain-strategy", "immediate", "--drain-time-s", "2"],
            stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"Envoy exited: {open(self._log.name).read()[-2000:]}"
            try:
                socket.create_connection((self.host, self.port), 0.2).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise AssertionError("Envoy does not listen")

    def stop(self):
        if self._process and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    def drain(self):
        """Ends the connections of the listener gracefully (GOAWAY), and closes its port after two seconds."""
        self._admin("drain_listeners?graceful", method="POST")

    def counter(self, name):
        return self._admin(f"stats?filter=^{name}$&format=json")["stats"][0]["value"]

    def resources(self):
        """{(type URL, name): (version, message as JSON)} of what it has from the management server."""
        found = {}
        for section in self._admin("config_dump?include_eds")["configs"]:
            for key, field in _DYNAMIC.items():
                for entry in section.get(key, []):
                    resource = {k: v for k, v in entry[field].items() if k != "@type"}
                    name = resource.get("name") or resource["cluster_name"]
                    found[entry[field]["@type"], name] = entry.get("version_info", ""), resource
        return found

    def _admin(self, path, method="GET"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}/{path}", method=method)
        body = urllib.request.urlopen(request, timeout=5).read()
        return json.loads(body) if body.startswith(b"{") else body


def _config(plane, route, node, port, admin_port):
    host, _, ads_port = plane.address.rpartition(":")
    ads = {"ads": {}, "resource_api_version": "V3"}
    return {
        "node": {"id": node, "cluster": "interop"},
        "admin": {"address": _address("127.0.0.1", admin_port)},
        "dynamic_resources": {
            "ads_config": {"api_type": "GRPC", "transport_api_version": "V3",
                           "grpc_services": [{"envoy_grpc": {"cluster_name": "control-plane"}}]},
            "cds_config": ads,
        },
        "static_resources": {
            "listeners": [{
                "name": "in", "address": _address("127.0.0.1", port),
                "filter_chains": [{"filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3."
                                 "HttpConnectionManager",
                        "stat_prefix": "in", "codec_type": "HTTP2", "drain_timeout": "1s",
                        "rds": {"route_config_name": route, "config_source": ads},
                        "http_filters": [{
                            "name": "envoy.filters.http.router",
                            "typed_config": {
                                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}],
            "clusters": [{
                "name": "control-plane", "type": "STATIC", "typed_extension_protocol_options": _HTTP2,
                "load_assignment": {"cluster_name": "control-plane", "endpoints": [{"lb_endpoints": [
                    {"endpoint": {"address": _address(host, int(ads_port))}}]}]}}],
        },
    }


def _address(host, port):
    return {"socket_address": {"address": host, "port_value": port}}
