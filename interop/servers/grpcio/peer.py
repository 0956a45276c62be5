"""gRPC's interop server and client on grpcio, which has none of its own in a package. The flags are in ../peers.py."""

import argparse
import concurrent.futures
import pathlib
import sys
import time

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "crates" / "interop" / "proto"))
pb, services = grpc.protos_and_services("services.proto")
pb = grpc.protos("messages.proto")

INITIAL = "x-grpc-test-echo-initial"
TRAILING = "x-grpc-test-echo-trailing-bin"
REQUESTS, RESPONSES = (27182, 8, 1828, 45904), (31415, 9, 2653, 58979)
LIMITS = [("grpc.max_receive_message_length", -1)]


def zeros(size):
    return pb.Payload(body=bytes(size))


# -- the server ---------------------------------------------------------------------------

class TestService(services.TestServiceServicer):
    def EmptyCall(self, request, context):
        echo(context)
        return pb.Empty()

    def UnaryCall(self, request, context):
        echo(context)
        check_status(request.response_status, context)
        if request.response_compressed.value:
            context.set_compression(grpc.Compression.Gzip)
        return pb.SimpleResponse(payload=zeros(request.response_size))

    def StreamingInputCall(self, requests, context):
        return pb.StreamingInputCallResponse(aggregated_payload_size=sum(len(r.payload.body) for r in requests))

    def StreamingOutputCall(self, request, context):
        echo(context)
        if any(p.compressed.value for p in request.response_parameters):
            context.set_compression(grpc.Compression.Gzip)
        yield from self._answers(request, context)

    def FullDuplexCall(self, requests, context):
        echo(context)
        for request in requests:
            yield from self._answers(request, context)

    def _answers(self, request, context):
        for parameters in request.response_parameters:
            time.sleep(parameters.interval_us / 1e6)
            if not parameters.compressed.value:
                context.disable_next_message_compression()
            yield pb.StreamingOutputCallResponse(payload=zeros(parameters.size))
        check_status(request.response_status, context)


def echo(context):
    metadata = dict(context.invocation_metadata())
    if TRAILING in metadata:
        context.set_trailing_metadata([(TRAILING, metadata[TRAILING])])
    if INITIAL in metadata:
        context.send_initial_metadata([(INITIAL, metadata[INITIAL])])


def check_status(status, context):
    if status.code:
        code = next(c for c in grpc.StatusCode if c.value[0] == status.code)
        context.abort(code, status.message)


def serve(tls):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), options=LIMITS)
    services.add_TestServiceServicer_to_server(TestService(), server)
    if tls:
        credentials = grpc.ssl_server_credentials([(tls["key"], tls["certificate"])], tls["ca"], require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


# -- the client: a function for each case ------------------------------------------------------

def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_code(code, call):
    try:
        call()
    except grpc.RpcError as error:
        expect(error.code() == code, f"{error.code()} instead of {code}")
        return error
    raise AssertionError(f"OK instead of {code}")


def large(**fields):
    return pb.SimpleRequest(response_size=314159, payload=zeros(271828), **fields)


def expect_large(response):
    expect(response.payload.body == bytes(314159), f"a payload of {len(response.payload.body)} bytes")


def ping(index):
    return pb.StreamingOutputCallRequest(
        response_parameters=[pb.ResponseParameters(size=RESPONSES[index])], payload=zeros(REQUESTS[index]))


class Requests:
    """A stream of requests that ends when told to."""

    def __init__(self):
        import queue
        self._queue = queue.Queue()

    def send(self, request):
        self._queue.put(request)

    def end(self):
        self._queue.put(None)

    def __iter__(self):
        return iter(self._queue.get, None)


def empty_unary(stub, _):
    stub.EmptyCall(pb.Empty(), timeout=10)


def large_unary(stub, _):
    expect_large(stub.UnaryCall(large(), timeout=10))


def client_compressed_unary(stub, _):
    wanted, unwanted = pb.BoolValue(value=True), pb.BoolValue(value=False)
    expect_code(grpc.StatusCode.INVALID_ARGUMENT, lambda: stub.UnaryCall(large(expect_compressed=wanted), timeout=10))
    expect_large(stub.UnaryCall(large(expect_compressed=wanted), timeout=10, compression=grpc.Compression.Gzip))
    expect_large(stub.UnaryCall(large(expect_compressed=unwanted), timeout=10))


def client_compressed_streaming(stub, _):
    def request(size, compressed):
        return pb.StreamingInputCallRequest(payload=zeros(size), expect_compressed=pb.BoolValue(value=compressed))
    expect_code(grpc.StatusCode.INVALID_ARGUMENT, lambda: stub.StreamingInputCall(iter([request(27182, True)]), timeout=10))
    # grpcio compresses all messages of a stream or none, so the two of gRPC's case are streams of their own.
    for size, compressed in ((27182, True), (45904, False)):
        total = stub.StreamingInputCall(iter([request(size, compressed)]), timeout=10,
                                        compression=grpc.Compression.Gzip if compressed else None)
        expect(total.aggregated_payload_size == size, f"{total.aggregated_payload_size} bytes instead of {size}")


def server_compressed_unary(stub, _):
    # grpcio does not show whether a message was compressed: the contents are checked alone.
    for compressed in (True, False):
        expect_large(stub.UnaryCall(large(response_compressed=pb.BoolValue(value=compressed)), timeout=10))


def client_streaming(stub, _):
    requests = (pb.StreamingInputCallRequest(payload=zeros(size)) for size in REQUESTS)
    total = stub.StreamingInputCall(requests, timeout=10).aggregated_payload_size
    expect(total == 74922, f"{total} bytes instead of 74922")


def server_streaming(stub, _):
    request = pb.StreamingOutputCallRequest(response_parameters=[pb.ResponseParameters(size=s) for s in RESPONSES])
    sizes = [len(response.payload.body) for response in stub.StreamingOutputCall(request, timeout=10)]
    expect(tuple(sizes) == RESPONSES, f"responses of {sizes} bytes")


def ping_pong(stub, _):
    requests = Requests()
    responses = stub.FullDuplexCall(iter(requests), timeout=10)
    for index, size in enumerate(RESPONSES):
        requests.send(ping(index))
        received = len(next(responses).payload.body)
        expect(received == size, f"response {index} has {received} bytes")
    requests.end()
    expect(next(responses, None) is None, "a response that was not asked for")


def empty_stream(stub, _):
    expect(list(stub.FullDuplexCall(iter([]), timeout=10)) == [], "a response that was not asked for")


def custom_metadata(stub, _):
    metadata = [(INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab")]
    response, call = stub.UnaryCall.with_call(large(), metadata=metadata, timeout=10)
    expect_large(response)
    stream = stub.FullDuplexCall(iter([ping(0)]), metadata=metadata, timeout=10)
    expect(len(list(stream)) == 1, "not one response")
    for outcome in (call, stream):
        initial, trailing = dict(outcome.initial_metadata()), dict(outcome.trailing_metadata())
        expect(initial.get(INITIAL) == metadata[0][1], f"initial metadata {initial}")
        expect(trailing.get(TRAILING) == metadata[1][1], f"trailing metadata {trailing}")


def large_metadata(stub, _):
    value = "v" * 6 * 1024
    _, call = stub.UnaryCall.with_call(pb.SimpleRequest(), metadata=[(INITIAL, value)], timeout=10)
    expect(dict(call.initial_metadata()).get(INITIAL) == value, "the metadata was not echoed")


def status_code_and_message(stub, _):
    wanted = pb.EchoStatus(code=2, message="test status message")
    unary = expect_code(grpc.StatusCode.UNKNOWN, lambda: stub.UnaryCall(pb.SimpleRequest(response_status=wanted), timeout=10))
    stream = expect_code(grpc.StatusCode.UNKNOWN, lambda: list(stub.FullDuplexCall(
        iter([pb.StreamingOutputCallRequest(response_status=wanted)]), timeout=10)))
    for error in (unary, stream):
        expect(error.details() == wanted.message, f"the message is {error.details()!r}")


def special_status_message(stub, _):
    message = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
    request = pb.SimpleRequest(response_status=pb.EchoStatus(code=2, message=message))
    error = expect_code(grpc.StatusCode.UNKNOWN, lambda: stub.UnaryCall(request, timeout=10))
    expect(error.details() == message, f"the message is {error.details()!r}")


def unimplemented_method(_, channel):
    expect_unimplemented(channel, "/grpc.testing.TestService/UnimplementedCall")


def unimplemented_service(_, channel):
    expect_unimplemented(channel, "/grpc.testing.UnimplementedService/UnimplementedCall")


def expect_unimplemented(channel, path):
    call = channel.unary_unary(path, pb.Empty.SerializeToString, pb.Empty.FromString)
    expect_code(grpc.StatusCode.UNIMPLEMENTED, lambda: call(pb.Empty(), timeout=10))


def cancel_after_begin(stub, _):
    requests = Requests()
    call = stub.StreamingInputCall.future(iter(requests), timeout=10)
    call.cancel()
    requests.end()
    expect(call.cancelled() and call.code() == grpc.StatusCode.CANCELLED, f"{call.code()}")


def cancel_after_first_response(stub, _):
    requests = Requests()
    responses = stub.FullDuplexCall(iter(requests), timeout=10)
    requests.send(ping(0))
    next(responses)
    responses.cancel()
    expect_code(grpc.StatusCode.CANCELLED, lambda: next(responses))
    requests.end()


def timeout_on_sleeping_server(stub, _):
    request = pb.StreamingOutputCallRequest(
        payload=zeros(27182), response_parameters=[pb.ResponseParameters(size=31415, interval_us=5_000_000)])
    error = expect_code(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: list(stub.StreamingOutputCall(request, timeout=0.001)))
    expect(error.details(), "a status without message")


def run(address, tls, names):
    if tls:
        credentials = grpc.ssl_channel_credentials(tls["ca"], tls["key"], tls["certificate"])
        channel = grpc.secure_channel(address, credentials, options=LIMITS)
    else:
        channel = grpc.insecure_channel(address, options=LIMITS)
    stub = services.TestServiceStub(channel)
    for name in names:
        try:
            globals()[name](stub, channel)
        except (AssertionError, grpc.RpcError) as failure:
            sys.exit(f"FAILED {name}: {failure}")
        print("PASSED", name, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("server", "client"))
    parser.add_argument("-server", dest="address")
    for name in ("certificate", "key", "ca"):
        parser.add_argument(f"-{name}", type=pathlib.Path)
    parser.add_argument("cases", nargs="*")
    options = parser.parse_intermixed_args()
    tls = options.certificate and {
        name: getattr(options, name).read_bytes() for name in ("certificate", "key", "ca")}
    if options.mode == "server":
        serve(tls)
    else:
        run(options.address, tls, options.cases)


if __name__ == "__main__":
    main()
