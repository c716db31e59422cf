"""Lines between processes and their database or endpoint: TCP over the loopback interface, with faults.

One thread carries all lines of a run: a run has about twenty, and all its statements and calls go through them.
"""

import asyncio
import contextlib
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from http.client import HTTP_PORT
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from spark_load.faults.shapes import FaultKind

type _Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

_CHUNK = 65_536
_JSON_THROTTLED = b'{"__type": "com.amazonaws.sqs#ThrottlingException", "message": "Rate exceeded"}'
_XML_THROTTLED = (
    b"<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code><Message>Rate exceeded</Message></Error>"
    b"<RequestId>chaos</RequestId></ErrorResponse>"
)
_PAGE = b"<html><body>This is the proxy. Please log in.</body></html>"


class FaultLine:
    """One line. Any thread may set its fault; each call that the fault hits is counted."""

    def __init__(self, reach: _Connect, counts: Counter[str]) -> None:
        self._reach, self._counts = reach, counts
        self._kind: str | None = None
        self._detail = ""
        self._passes = asyncio.Event()
        self._passes.set()
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.hits = 0
        """How many calls the last fault has hit."""

    async def listen(self) -> asyncio.Server:
        """Begin to accept connections."""
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def suffer(self, kind: str | None, detail: str) -> None:
        """Begin a fault of the line, or end it with None. Runs on the thread of the lines."""
        self._kind, self._detail = kind, detail
        self.hits = self.hits if kind is None else 0
        if kind == FaultKind.STALL:
            self._passes.clear()
        else:
            self._passes.set()
        if kind == FaultKind.CUT:
            for writer in list(self._open):
                self._abort(writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client to the far end, and copy bytes in both directions until one of them ends."""
        if self._kind == FaultKind.CUT:
            self._abort(writer)
            return
        try:
            there_reader, there_writer = await self._reach()
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, there_writer}
        self._open |= ends
        pumps = [
            asyncio.ensure_future(self._pump(reader, there_writer, writer, is_request=True)),
            asyncio.ensure_future(self._pump(there_reader, writer, there_writer, is_request=False)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._open -= ends
            for end in ends:
                end.close()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, back: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        """Copy bytes from a source to a sink, with the line's fault; `back` leads to whoever sends the bytes."""
        with contextlib.suppress(OSError):
            while chunk := await source.read(_CHUNK):
                await self._delay()
                match self._kind:
                    case FaultKind.LOSE if not is_request:
                        self._hit("answers lost")
                        sink.transport.abort()
                        return
                    case FaultKind.ANSWER if is_request is not self._detail.startswith("after-"):
                        request = await _whole(source, chunk) if is_request else chunk
                        await self._answer(back if is_request else sink, request)
                        return
                    case FaultKind.SWALLOW if is_request:
                        chunk = await _whole(source, chunk)
                        if (forged := acknowledge_all(chunk)) is not None:
                            self._hit("publishes swallowed")
                            back.write(forged)
                            await back.drain()
                            continue
                sink.write(chunk)
                await sink.drain()

    def _hit(self, what: str) -> None:
        self.hits += 1
        self._counts[what] += 1

    async def _delay(self) -> None:
        if self._kind == FaultKind.STALL:
            self._hit("packets stalled")
            await self._passes.wait()
        elif self._kind == FaultKind.SLOW:
            self._hit("packets delayed")
            await asyncio.sleep(float(self._detail.removesuffix(" s")))

    async def _answer(self, writer: asyncio.StreamWriter, request: bytes) -> None:
        """Answer in the endpoint's place, and close the connection."""
        self._hit("answers replaced")
        writer.write(make_answer(self._detail.removeprefix("after-"), is_json=b"amz-json" in request.lower()))
        await writer.drain()

    def _abort(self, writer: asyncio.StreamWriter) -> None:
        self._hit("connections cut")
        writer.transport.abort()


async def _whole(source: asyncio.StreamReader, request: bytes) -> bytes:
    """Read a request to the end of its body: if the connection were closed earlier, the client would get no answer."""
    while b"\r\n\r\n" not in request and (more := await source.read(_CHUNK)):
        request += more
    head, _, body = request.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: *([0-9]+)", head, re.IGNORECASE)
    missing = int(found[1]) - len(body) if found else 0
    return request + (await source.readexactly(missing) if missing > 0 else b"")


def make_answer(name: str, *, is_json: bool) -> bytes:
    """Return the HTTP answer for a name of `shapes.ANSWERS` without its prefix `after-`."""
    status, body, cut_bytes = {
        "500": ("500 Internal Server Error", b"", 0),
        "503": ("503 Service Unavailable", _PAGE, 0),
        "throttled": ("400 Bad Request", _JSON_THROTTLED if is_json else _XML_THROTTLED, 0),
        "garbage": ("200 OK", _PAGE, 0),
        "cut-short": ("200 OK", b'{"Messages": [{"Mess' if is_json else b"<PublishBatchResponse><Publ", 100),
    }[name]
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body) + cut_bytes}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def acknowledge_all(request: bytes) -> bytes | None:
    """Return an answer that accepts every message of a PublishBatch; None for any other request.

    It has no sequence numbers, because SNS would have counted further.
    """
    fields = parse_qs(request.partition(b"\r\n\r\n")[2].decode(errors="replace"))
    if fields.get("Action") != ["PublishBatch"]:
        return None
    ids = [values[0] for name, values in fields.items() if name.endswith(".Id")]
    members = "".join(f"<member><Id>{id_}</Id><MessageId>{uuid4()}</MessageId></member>" for id_ in ids)
    body = (
        '<PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishBatchResult><Successful>'
        f"{members}</Successful><Failed/></PublishBatchResult></PublishBatchResponse>"
    )
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


class Lines:
    """All lines of a run, by name; carried while the block is entered."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lines: dict[str, FaultLine] = {}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lines", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def to_endpoint(self, name: str, url: str) -> str:
        """Open a line to an endpoint that speaks plain HTTP, and return the URL of its near end."""
        address = urlsplit(url)
        port = self.open(name, lambda: asyncio.open_connection(address.hostname, address.port or HTTP_PORT))
        return f"http://127.0.0.1:{port}"

    def to_server(self, name: str, host: str, port: int) -> int:
        """Open a line to a port, and return the port of its near end."""
        return self.open(name, lambda: asyncio.open_connection(host, port))

    def to_socket(self, name: str, path: str) -> int:
        """Open a line to a Unix socket, such as that of a Postgres, and return the port of its near end."""
        return self.open(name, lambda: asyncio.open_unix_connection(path))

    def open(self, name: str, reach: _Connect) -> int:
        """Open a line to the target of `reach`, and return the port of its near end."""
        line = FaultLine(reach, self.counts)
        self._lines[name] = line
        self._servers.append(asyncio.run_coroutine_threadsafe(line.listen(), self._loop).result(10))
        return line.port

    def suffer(self, target: str, kind: str | None, detail: str = "") -> None:
        """Begin a fault of a line or of `all:` to one end, or end it with None."""
        for line in self._of(target):
            self._loop.call_soon_threadsafe(line.suffer, kind, detail)

    def hits(self, target: str) -> int:
        """Return how many calls the last fault of a line, or of `all:` to one end, has hit."""
        return sum(line.hits for line in self._of(target))

    def _of(self, target: str) -> Iterator[FaultLine]:
        name, _, end = target.partition(":")
        for known, line in self._lines.items():
            if known == target or (name == "all" and known.endswith(f":{end}")):
                yield line
