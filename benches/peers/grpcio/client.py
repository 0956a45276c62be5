"""The C-core contestant of the benchmark, through grpcio.

Reads one JSON command per line from stdin, answers each with one JSON line on stdout, and ends at EOF. The contract is
in ../README.md. It uses asyncio: of grpcio's three ways to make many RPCs at a time (threads, futures, asyncio) that
one has the highest throughput, the least CPU per RPC and the smallest memory.
"""

import argparse
import asyncio
import json
import sys
import time
from array import array

import grpc
import grpc.aio
from grpc.experimental import insecure_channel_credentials

UNARY = "/bench.Bench/Unary"
STREAM = "/bench.Bench/Stream"
SINK = "/bench.Bench/Sink"
SOURCE = "/bench.Bench/Source"
# How long after the end of a measurement an RPC may still take before it is given up.
GRACE_S = 10
# After a failed RPC of the load, so that a dead backend is not asked as fast as it can refuse.
PAUSE_S = 0.001


class Contestant:
    """The state between commands. Nothing exists until a command needs it."""

    def __init__(self, target, keepalive_ms):
        self._target = target
        self._keepalive = []
        if keepalive_ms:
            self._keepalive = [("grpc.keepalive_time_ms", keepalive_ms), ("grpc.keepalive_timeout_ms", keepalive_ms)]
        self._channel = None
        self._others = []
        self._load = None
        self._commands = {
            "first": self.first,
            "calls": self.calls,
            "stream": self.stream,
            "flood": self.flood,
            "load": self.start_load,
            "mark": self.mark,
            "stop": self.stop_load,
            "channels": self.add_channels,
        }

    async def answer(self, line):
        """Runs one command; one that cannot be run is answered with what is wrong."""
        try:
            arguments = json.loads(line)
            name = arguments.pop("cmd")
            if name not in self._commands:
                raise ValueError(f"unknown command {name!r}")
            return await self._commands[name](**arguments)
        except Exception as error:  # whatever it is, the harness gets an answer
            print(f"{line!r}: {error}", file=sys.stderr)
            return {"error": str(error)}

    async def first(self, timeout_s=30):
        """Makes the channel where there is none, and one RPC through it."""
        try:
            await connect(self._main(), timeout_s)
        except grpc.RpcError as error:
            return {"ok": False, "error": str(error)}
        return {"ok": True}

    async def calls(self, concurrency, seconds, payload=32):
        """Unary RPCs in a closed loop: as many callers as asked for, each one RPC after the other."""
        method = self._main().unary_unary(UNARY)
        message = request(payload)
        latencies = array("Q")
        failed = 0

        async def caller(end):
            nonlocal failed
            begin = time.monotonic_ns()
            while begin < end:
                try:
                    await method(message)
                except grpc.RpcError:
                    failed += 1
                    begin = time.monotonic_ns()
                else:
                    now = time.monotonic_ns()
                    latencies.append(now - begin)
                    begin = now

        elapsed, hung, _ = await closed_loop(concurrency, seconds, caller)
        ordered = sorted(latencies)
        return {
            "rpcs": len(ordered),
            "failed": failed + hung,
            "seconds": elapsed,
            "p50_us": quantile(ordered, 0.50) / 1000,
            "p99_us": quantile(ordered, 0.99) / 1000,
        }

    async def stream(self, concurrency, seconds, payload=32):
        """Ping-pong on bidirectional streams; a message counts when its answer has come back."""
        method = self._main().stream_stream(STREAM)
        message = request(payload)

        async def caller(end):
            call = method()
            count = 0
            try:
                while time.monotonic_ns() < end:
                    await call.write(message)
                    if await call.read() is grpc.aio.EOF:
                        raise EOFError("the server ended a stream")
                    count += 1
                await call.done_writing()
                return count
            finally:
                call.cancel()

        elapsed, hung, counts = await closed_loop(concurrency, seconds, caller)
        if hung:
            raise TimeoutError(f"{hung} streams got no answer")
        return {"messages": sum(counts), "seconds": elapsed}

    async def flood(self, direction, concurrency, seconds, payload=32, messages=None):
        """Messages in one direction on each stream, for a time or up to a number of messages."""
        sink = self._main().stream_unary(SINK)
        source = self._main().unary_stream(SOURCE)
        message = request(payload)
        length = encoded(str(payload).encode())

        def ended(end, count):
            return count == messages or time.monotonic_ns() >= end

        async def up(end):
            call = sink()
            count = 0
            try:
                while not ended(end, count):
                    await call.write(message)
                    count += 1
                await call.done_writing()
                # The response says that the server has read everything.
                await call
                return count
            finally:
                call.cancel()

        async def down(end):
            call = source(length)
            count = 0
            try:
                while not ended(end, count):
                    if await call.read() is grpc.aio.EOF:
                        raise EOFError("the server ended a stream")
                    count += 1
                return count
            finally:
                call.cancel()

        caller = {"up": up, "down": down}[direction]
        elapsed, hung, counts = await closed_loop(concurrency, seconds, caller)
        if hung:
            raise TimeoutError(f"{hung} streams did not end")
        return {"messages": sum(counts), "seconds": elapsed}

    async def start_load(self, concurrency, timeout_ms=1000, payload=32):
        """Starts RPCs in the background."""
        if self._load:
            raise RuntimeError("a load is already running")
        self._load = Load(self._main(), concurrency, timeout_ms / 1000, request(payload))
        return {"ok": True}

    async def mark(self):
        """What the load did since the last mark."""
        return self._running_load().take()

    async def stop_load(self):
        """The last mark of the load, after the RPCs under way have ended by themselves."""
        load = self._running_load()
        await load.stop()
        self._load = None
        return load.take()

    async def add_channels(self, count, timeout_s=30):
        """Makes further channels and connects each.

        With a subchannel pool of its own a channel shares no connection. C-core does share the xDS client among
        channels of the same target, and has no option against that.
        """
        for _ in range(count):
            channel = self._open([("grpc.use_local_subchannel_pool", 1)])
            self._others.append(channel)
            await connect(channel, timeout_s)
        return {"ok": True}

    def _main(self):
        """The main channel, created by the first command that needs it."""
        if self._channel is None:
            self._channel = self._open([])
        return self._channel

    def _open(self, options):
        options = options + self._keepalive
        if not self._target.startswith("xds:"):
            return grpc.aio.insecure_channel(self._target, options)
        credentials = grpc.xds_channel_credentials(fallback_credentials=insecure_channel_credentials())
        return grpc.aio.secure_channel(self._target, credentials, options)

    def _running_load(self):
        if self._load is None:
            raise RuntimeError("no load is running")
        return self._load

    async def end(self):
        """Ends all that runs."""
        if self._load:
            await self._load.stop()
        for channel in [self._channel, *self._others]:
            if channel:
                await channel.close()


class Load:
    """RPCs in the background between the commands load and stop."""

    def __init__(self, channel, concurrency, timeout_s, message):
        self._tally = Tally()
        self._stopped = False
        method = channel.unary_unary(UNARY)
        self._callers = [
            asyncio.create_task(self._run(method, timeout_s, message)) for _ in range(concurrency)
        ]

    async def _run(self, method, timeout_s, message):
        while not self._stopped:
            try:
                response = await method(message, timeout=timeout_s)
            except grpc.RpcError as error:
                self._tally.failed(error.code().name)
                await asyncio.sleep(PAUSE_S)
            else:
                self._tally.succeeded(backend(response), time.clock_gettime_ns(time.CLOCK_MONOTONIC))

    def take(self):
        """What was counted, and counting starts anew."""
        tally, self._tally = self._tally, Tally()
        return {"ok": tally.ok, "failed": sum(tally.codes.values()), "codes": tally.codes, "backends": tally.backends}

    async def stop(self):
        """Lets RPCs under way end by themselves, so that none is counted as cancelled."""
        self._stopped = True
        await asyncio.gather(*self._callers)


class Tally:
    """What happened since the last mark."""

    def __init__(self):
        self.ok = 0
        self.codes = {}
        self.backends = {}

    def failed(self, code):
        self.codes[code] = self.codes.get(code, 0) + 1

    def succeeded(self, name, now):
        self.ok += 1
        span = self.backends.get(name)
        if span is None:
            self.backends[name] = {"count": 1, "first_ns": now, "last_ns": now}
        else:
            span["count"] += 1
            span["last_ns"] = now


async def connect(channel, timeout_s):
    """One RPC that waits until the channel is ready."""
    await channel.unary_unary(UNARY)(request(32), timeout=timeout_s, wait_for_ready=True)


async def closed_loop(concurrency, seconds, caller):
    """Runs callers until their common end: the seconds it took, how many hung, and what the others returned."""
    begin = time.monotonic_ns()
    end = begin + int(seconds * 1e9)
    callers = [asyncio.create_task(caller(end)) for _ in range(concurrency)]
    ended, hung = set(), set()
    if callers:
        ended, hung = await asyncio.wait(callers, timeout=seconds + GRACE_S)
    elapsed = (time.monotonic_ns() - begin) / 1e9
    for task in hung:
        task.cancel()
    return elapsed, len(hung), [task.result() for task in ended]


def quantile(ordered, part):
    return ordered[int(part * len(ordered))] if ordered else 0


def request(payload):
    """An encoded google.protobuf.BytesValue of that many zero bytes."""
    return encoded(bytes(payload))


def encoded(value):
    """An encoded google.protobuf.BytesValue: field 1, its length as a varint, the bytes."""
    if not value:
        return b""
    length, rest = bytearray(), len(value)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return b"\x0a" + bytes(length) + value


def backend(response):
    """The name at the start of an encoded BytesValue: all before the first NUL."""
    begin = 1
    while begin < len(response) and response[begin] & 0x80:
        begin += 1
    begin += 1
    end = response.find(0, begin)
    return response[begin : end if end >= 0 else len(response)].decode()


async def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True, help="xds:///name or ip:port")
    parser.add_argument("--keepalive-ms", type=int, help="PINGs after so long, and as long for the answer")
    arguments = parser.parse_args()
    contestant = Contestant(arguments.target, arguments.keepalive_ms)
    # A blocking read in a thread: works for pipes and files alike, and does not wake up while there is nothing to do.
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        print(json.dumps(await contestant.answer(line)), flush=True)
    await contestant.end()


if __name__ == "__main__":
    asyncio.run(main())
