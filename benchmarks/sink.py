"""A topic that takes everything, and a queue that never ends: on the loopback, after a delay that stands for AWS's.

    python -m benchmarks.sink --delay-seconds 0.01

It is a process of its own, so that what it costs is not taken from whoever is measured, cores permitting.
"""

import asyncio
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from urllib.parse import unquote_plus
from xml.sax.saxutils import escape

import click

from benchmarks import source

_ENTRY_ID = re.compile(rb"PublishBatchRequestEntries\.member\.\d+\.Id=([^&]+)")
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_SQS = re.compile(rb"(?i)\r\nx-amz-target: *AmazonSQS\.(\w+)")
_REQUEST_BYTES_MAX = 4_000_000
_sequence_numbers = count(10**19)


def answer(body: bytes) -> bytes:
    """Return what SNS answers to a PublishBatch all of whose entries are taken, in the query protocol."""
    taken = "".join(
        f"<member><Id>{escape(unquote_plus(found.decode()))}</Id><MessageId>{uuid.uuid4()}</MessageId>"
        f"<SequenceNumber>{next(_sequence_numbers)}</SequenceNumber></member>"
        for found in _ENTRY_ID.findall(body)
    )
    return (
        '<PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishBatchResult><Failed/>'
        f"<Successful>{taken}</Successful></PublishBatchResult><ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId>"
        "</ResponseMetadata></PublishBatchResponse>"
    ).encode()


@contextmanager
def running(delay_seconds: float) -> Iterator[str]:
    """Yield the URL of a sink, which ends with the block."""
    command = [sys.executable, "-m", "benchmarks.sink", "--delay-seconds", str(delay_seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class _Connection(asyncio.Protocol):
    """One client's connection; requests come one after the other."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where answers go."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer once the request is whole."""
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if len(self._received) > _REQUEST_BYTES_MAX:
            self._transport.close()
        elif length is not None and len(body) >= int(length[1]):
            self._received = b""
            asyncio.get_running_loop().call_later(self._delay_seconds, self._respond, *_answered(head, body))

    def _respond(self, kind: str, said: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(said)}\r\n\r\n"
        self._transport.write(head.encode() + said)


def _answered(head: bytes, body: bytes) -> tuple[str, bytes]:
    asked = _SQS.search(head)
    if asked is None:
        return "text/xml", answer(body)
    return "application/x-amz-json-1.0", source.answer(asked[1].decode(), body)


async def _serve(delay_seconds: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(delay_seconds), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


@click.command()
@click.option("--delay-seconds", default=0.0, show_default=True, help="Before each answer.")
def main(delay_seconds: float) -> None:
    """Print the URL, then answer until ended."""
    asyncio.run(_serve(delay_seconds))


if __name__ == "__main__":
    main()
