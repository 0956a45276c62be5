"""`proxyless serve` with clients of others: each follows an edited file, and stays where a broken file leaves it.

    peers.py PROGRAM grpcio|grpc-go|envoy ...
"""

import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc

CHECK = "/grpc.health.v1.Health/Check"
PATIENCE = 60


class Backend(grpc.GenericRpcHandler):
    """Answers health checks with its name in a header."""

    def __init__(self, name):
        self.name = name
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def service(self, details):
        def answer(_, context):
            context.send_initial_metadata((("backend", self.name),))
            return b"\x08\x01"

        return grpc.unary_unary_rpc_method_handler(answer) if details.method == CHECK else None


class Serve:
    """The program, and the lines that it prints."""

    def __init__(self, program, mesh):
        command = [program, "serve", "--listen", "127.0.0.1:0", str(mesh)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.address = self.line(" at 127.0.0.1:").split(" at ")[1].split(": ")[0]
        self.bootstrap = self.line("GRPC_XDS_BOOTSTRAP_CONFIG=").split("'")[1]

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def line(self, part):
        seen, deadline = [], time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                seen.append(self.lines.get(timeout=1))
            except queue.Empty:
                continue
            if part in seen[-1]:
                return seen[-1]
        raise AssertionError(f"no line with {part!r}: {seen}")


def raw_call(channel, **options):
    """The name of the backend that answers."""
    _, call = channel.unary_unary(CHECK).with_call(b"", timeout=20, **options)
    return dict(call.initial_metadata())["backend"]


def short_form(backend):
    return f"services:\n  greeter: {{ cluster: {backend.name} }}\nclusters:\n  {backend.name}: [{backend.address}]\n"


def of_grpcio(serve, _folder):
    os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = serve.bootstrap
    channel = grpc.insecure_channel("xds:///greeter")
    return lambda: raw_call(channel)


def of_grpc_go(serve, _folder):
    environment = {**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": serve.bootstrap}
    client = subprocess.Popen(
        [os.environ["GRPC_GO"], "xds:///greeter"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def call():
        client.stdin.write("\n")
        client.stdin.flush()
        return client.stdout.readline().strip()

    return call


def raw_form(backend):
    """Raw resources for Envoy: a listener on a free port, and a cluster that speaks HTTP/2."""
    host, port = backend.address.split(":")
    return f"""
resources:
  - "@type": type.googleapis.com/envoy.config.listener.v3.Listener
    name: ingress
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {ENVOY_PORT} }} }}
    filter_chains:
      - filters:
          - name: envoy.filters.network.http_connection_manager
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
              stat_prefix: ingress
              codec_type: HTTP2
              rds: {{ route_config_name: routes, config_source: {{ ads: {{}}, resource_api_version: V3 }} }}
              http_filters:
                - name: envoy.filters.http.router
                  typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  - "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
    name: routes
    virtual_hosts:
      - {{ name: all, domains: ["*"], routes: [{{ match: {{ prefix: / }}, route: {{ cluster: {backend.name} }} }}] }}
  - "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: {backend.name}
    type: EDS
    connect_timeout: 5s
    eds_cluster_config: {{ eds_config: {{ ads: {{}}, resource_api_version: V3 }} }}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
  - "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
    cluster_name: {backend.name}
    endpoints:
      - lb_endpoints:
          - endpoint: {{ address: {{ socket_address: {{ address: {host}, port_value: {port} }} }} }}
"""


def envoy_bootstrap(address, api):
    host, port = address.split(":")
    return f"""
node: {{ id: envoy, cluster: envoy }}
dynamic_resources:
  ads_config:
    api_type: {api}
    transport_api_version: V3
    grpc_services: [{{ envoy_grpc: {{ cluster_name: serve }} }}]
  lds_config: {{ ads: {{}}, resource_api_version: V3 }}
  cds_config: {{ ads: {{}}, resource_api_version: V3 }}
static_resources:
  clusters:
    - name: serve
      type: STATIC
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {{ http2_protocol_options: {{}} }}
      load_assignment:
        cluster_name: serve
        endpoints:
          - lb_endpoints:
              - endpoint: {{ address: {{ socket_address: {{ address: {host}, port_value: {port} }} }} }}
"""


def of_envoy(serve, folder, api):
    binary = next(pathlib.Path(sys.prefix).glob("lib/python*/site-packages/envoy/_bin/envoy"))
    config = folder / "envoy.yaml"
    config.write_text(envoy_bootstrap(serve.address, api))
    log = open(folder / "envoy.log", "w")
    command = [str(binary), "-c", str(config), "--concurrency", "1", "--use-dynamic-base-id"]
    PROCESSES.append(subprocess.Popen(command, stdout=log, stderr=log))
    channel = grpc.insecure_channel(f"127.0.0.1:{ENVOY_PORT}")

    def call():
        # Envoy answers so itself while a new cluster has no endpoints yet.
        try:
            return raw_call(channel, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            return "envoy itself"

    return call


def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


ENVOY_PORT = free_port()
PROCESSES = []
PEERS = {
    "grpcio": [("grpcio", short_form, of_grpcio)],
    "grpc-go": [("grpc-go", short_form, of_grpc_go)],
    "envoy": [
        ("envoy", raw_form, lambda serve, folder: of_envoy(serve, folder, "GRPC")),
        ("envoy, incremental", raw_form, lambda serve, folder: of_envoy(serve, folder, "DELTA_GRPC")),
    ],
}


def until(call, wanted):
    deadline = time.monotonic() + PATIENCE
    while (found := call()) != wanted:
        assert time.monotonic() < deadline, f"{found} instead of {wanted}"
        time.sleep(0.05)


def test(program, name, form, client):
    first, second = Backend("first"), Backend("second")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        mesh = folder / "mesh.yaml"
        mesh.write_text(form(first))
        serve = Serve(program, mesh)
        PROCESSES.append(serve.process)
        try:
            call = client(serve, folder)
            until(call, "first")
            serve.line("ACK  ")
            mesh.write_text(form(second))
            serve.line("reloaded")
            until(call, "second")
            mesh.write_text("services: { broken: [")
            serve.line("not reloaded")
            assert call() == "second"
        finally:
            while PROCESSES:
                process = PROCESSES.pop()
                process.kill()
                process.wait()
            first.server.stop(0)
            second.server.stop(0)
    print(f"{name}: follows the file", flush=True)


if __name__ == "__main__":
    for peer in sys.argv[2:]:
        for case in PEERS[peer]:
            test(sys.argv[1], *case)
