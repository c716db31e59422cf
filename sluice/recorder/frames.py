"""The frames of a journal: each of its messages behind its length and checksums, so that nothing altered is read.

A frame is the message's length, its checksum, the checksum of these two, each in four bytes, and the message. The
checksums are CRC-32; a message's continues that of the message before, so a frame that is missing, doubled or elsewhere
is noticed, too. A file ends within a frame where its writer died; that is no damage.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sluice.errors import HistoryError

MAGIC = b"sluice-journal-2\n"
"""What a journal begins with."""
_HEAD = struct.Struct("<III")
_LENGTHS = struct.Struct("<II")
_BEFORE_CHECKSUMS = b"\xff\xff\xff\xff"  # an Arrow IPC stream, which the first version of journals was


def framed(message: bytes | memoryview, previous: int) -> tuple[bytes, int]:
    """Return the frame of a message, and the checksum that the next frame continues; of the first it is 0."""
    checksum = zlib.crc32(message, previous)
    lengths = _LENGTHS.pack(len(message), checksum)
    return b"".join((lengths, zlib.crc32(lengths).to_bytes(4, "little"), message)), checksum


def messages(path: Path) -> Iterator[bytes]:
    """Yield the messages of a journal, as far as it was written.

    Raises:
        HistoryError: something in it is not as it was written, or it is no journal.
    """
    with path.open("rb") as file:
        begun = file.read(len(MAGIC))
        if begun.startswith(_BEFORE_CHECKSUMS):
            raise HistoryError(
                f"{path} is a journal without checksums, of an earlier version of Sluice; judge it with the version"
                " that wrote it"
            )
        if not MAGIC.startswith(begun):
            raise HistoryError(f"{path} is not a journal of Sluice (it begins with other bytes)")
        if begun == MAGIC:
            yield from _messages(path, file)


def _messages(path: Path, file: BinaryIO) -> Iterator[bytes]:
    previous = 0
    while (message := _message(path, file, previous)) is not None:
        previous = zlib.crc32(message, previous)
        yield message


def _message(path: Path, file: BinaryIO, previous: int) -> bytes | None:
    """Return the next message; None at the end, and where a dead writer stopped in the middle of one."""
    begin, head = file.tell(), file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    length, checksum, of_these = _HEAD.unpack(head)
    if zlib.crc32(head[: _LENGTHS.size]) != of_these:
        raise _damaged(path, begin)
    message = file.read(length)
    if len(message) < length:
        return None
    if zlib.crc32(message, previous) != checksum:
        raise _damaged(path, begin)
    return message


def _damaged(path: Path, begin: int) -> HistoryError:
    return HistoryError(
        f"{path} is damaged: what stands at byte {begin} does not have its checksum; copy it again, or judge the other"
        " journals without it"
    )
