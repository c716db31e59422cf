"""A server on the loopback that accepts every publish and send, and whose queue never gets empty.

    python -m benchmarks.sink --delay-seconds 0.01
    python -m benchmarks.sink --certificate cert.pem --key key.pem

It is a process of its own, so that the measured process does not pay for it. `--delay-seconds` stands for the time AWS
needs. The answer to a batch is computed once for each list of ids, so that the server is not the slowest part.
"""

import asyncio
import json
import random
import re
import ssl
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from pathlib import Path
from urllib.parse import unquote_plus
from xml.sax.saxutils import escape

import click

from benchmarks import source
from sluice.clock import SystemClock

_ENTRY_ID = re.compile(rb"PublishBatchRequestEntries\.member\.\d+\.Id=([^&]+)")
_JSON_ID = re.compile(rb'"Id": ?"([^"]+)"')  # does not match inside a message body, where quotes are escaped
_ANSWERS_KEPT = 1_000
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_SQS = re.compile(rb"(?i)\r\nx-amz-target: *AmazonSQS\.(\w+)")
_REQUEST_BYTES_MAX = 4_000_000
_POLL_SECONDS = 0.001  # between two looks whether a receive that waits can be answered
_sequence_numbers = count(10**19)


def answer(body: bytes) -> bytes:
    """Return SNS's answer to a PublishBatch whose entries all succeed, in the query protocol."""
    return _publish_answer(tuple(_ENTRY_ID.findall(body)))


@lru_cache(_ANSWERS_KEPT)
def _publish_answer(ids: tuple[bytes, ...]) -> bytes:
    entries = "".join(
        f"<member><Id>{escape(unquote_plus(found.decode()))}</Id><MessageId>{uuid.uuid4()}</MessageId>"
        f"<SequenceNumber>{next(_sequence_numbers)}</SequenceNumber></member>"
        for found in ids
    )
    return (
        '<PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishBatchResult><Failed/>'
        f"<Successful>{entries}</Successful></PublishBatchResult><ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId>"
        "</ResponseMetadata></PublishBatchResponse>"
    ).encode()


@lru_cache(_ANSWERS_KEPT)
def _send_answer(ids: tuple[bytes, ...]) -> bytes:
    """Return SQS's answer to a SendMessageBatch whose entries all succeed."""
    entries = [
        {
            "Id": found.decode(),
            "MessageId": str(uuid.uuid4()),
            "MD5OfMessageBody": "0" * 32,
            "SequenceNumber": str(next(_sequence_numbers)),
        }
        for found in ids
    ]
    return json.dumps({"Successful": entries, "Failed": []}).encode()


@contextmanager
def running(
    delay_seconds: float,
    tls: tuple[Path, Path] | None = None,
    *,
    spread_seconds: float = 0,
    calls_per_second: float | None = None,
    host: str = "127.0.0.1",
) -> Iterator[str]:
    """Start a sink and yield its URL; it ends with the block. `tls` has the files of a certificate and its key."""
    command = [sys.executable, "-m", "benchmarks.sink", "--host", host]
    command += ["--delay-seconds", str(delay_seconds), "--spread-seconds", str(spread_seconds)]
    if calls_per_second is not None:
        command += ["--calls-per-second", str(calls_per_second)]
    if tls is not None:
        command += ["--certificate", str(tls[0]), "--key", str(tls[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class _Connection(asyncio.Protocol):
    """One connection of a client, which sends its next request after the answer to the last."""

    def __init__(self, delay_seconds: Callable[[], float]) -> None:
        self._delay_seconds = delay_seconds
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to which answers are written."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect bytes until the request is complete, then answer it."""
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if len(self._received) > _REQUEST_BYTES_MAX:
            self._transport.close()
        elif length is not None and len(body) >= int(length[1]):
            self._received = b""
            if (delay_seconds := self._delay_seconds()) > 0:
                asyncio.get_running_loop().call_later(delay_seconds, self._respond, head, body)
            else:
                self._respond(head, body)

    def _respond(self, request_head: bytes, request_body: bytes) -> None:
        kind, body = _answer(request_head, request_body)
        if body is None:  # a long poll; the clients of these queues never wait as long as it may last
            asyncio.get_running_loop().call_later(_POLL_SECONDS, self._respond, request_head, request_body)
            return
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


def _answer(head: bytes, body: bytes) -> tuple[str, bytes | None]:
    match = _SQS.search(head)
    if match is None:
        return "text/xml", answer(body)
    if match[1] == b"SendMessageBatch":
        return "application/x-amz-json-1.0", _send_answer(tuple(_JSON_ID.findall(body)))
    return "application/x-amz-json-1.0", source.answer(match[1].decode(), body)


async def _serve(delay_seconds: Callable[[], float], tls: ssl.SSLContext | None, host: str) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(delay_seconds), host, 0, ssl=tls, backlog=1_000)
    port = server.sockets[0].getsockname()[1]
    print(f"http://{host}:{port}" if tls is None else f"https://localhost:{port}", flush=True)
    await server.serve_forever()


@click.command()
@click.option("--delay-seconds", default=0.0, show_default=True, help="Wait before each answer.")
@click.option(
    "--spread-seconds", default=0.0, show_default=True, help="Mean of a random, exponential delay that is added."
)
@click.option("--calls-per-second", type=float, help="Answer at most so many calls a second; others wait.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--certificate", type=click.Path(exists=True), help="File of a certificate; with it the server speaks TLS."
)
@click.option("--key", type=click.Path(exists=True), help="File of the certificate's key.")
def main(
    delay_seconds: float,
    spread_seconds: float,
    calls_per_second: float | None,
    host: str,
    certificate: str | None,
    key: str | None,
) -> None:
    """Print the URL, then answer until ended."""
    tls = None
    if certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
    draws, clock, free_at = random.Random(0), SystemClock(), 0.0

    def delay() -> float:
        nonlocal free_at
        waits = 0.0
        if calls_per_second is not None:
            now = clock.monotonic()
            free_at = max(free_at, now) + 1 / calls_per_second
            waits = free_at - now
        return waits + delay_seconds + (draws.expovariate(1 / spread_seconds) if spread_seconds else 0)

    asyncio.run(_serve(delay, tls, host))


if __name__ == "__main__":
    main()
