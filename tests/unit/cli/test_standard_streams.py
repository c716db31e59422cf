"""A standard stream waits for a slow reader, and drops bytes that nobody reads, with a count."""

import io
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from sluice.terminal import streams


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """Yield the reading end of a pipe, and a standard stream that writes to the other end."""
    reader, writer = os.pipe()
    yield reader, streams.stream(writer, None)
    os.close(reader)
    os.close(writer)


def test_output_that_nobody_reads_is_dropped_and_counted(
    pipe: tuple[int, io.TextIOWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker must not wait for a reader of its log.

    The pipe holds less than 300,000 bytes; a later reader gets the number of those that are missing.
    """
    reader, stream = pipe
    monkeypatch.setattr(streams, "WAIT_MILLISECONDS", 1)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        streams.bound_waits()

    for _ in range(3):
        stream.write("x" * 100_000)
        stream.flush()
    read = os.read(reader, 1_000_000)
    stream.write("again\n")
    stream.flush()

    event = '"event": "bytes were left out here, which nobody read in time"'
    left_out = 3 * 100_000 - len(read)
    assert read == b"x" * len(read)
    assert os.read(reader, 1_000_000).decode() == f'\n{{{event}, "bytes": {left_out}, "level": "warning"}}\nagain\n'


def test_all_arrives_at_a_reader_that_takes_its_time(pipe: tuple[int, io.TextIOWrapper]) -> None:
    """A pager may pause for minutes: no part of the output is dropped."""
    reader, stream = pipe
    writing = threading.Thread(target=lambda: print("x" * 1_000_000, file=stream, flush=True))
    writing.start()

    read = 0
    while read < 1_000_001:
        read += len(os.read(reader, 10_000))

    writing.join()
