"""The frames of a journal: a length and checksums stand before each message, so that an altered message is refused.

A frame is the message's length, its checksum, the checksum of these two, each in four bytes, and the message. The
checksums are CRC-32. A message's checksum continues that of the message before, so a frame that is missing, doubled or
moved is noticed too. Two things are no damage. If the writer died, the file ends within a frame. After a power loss the
file may end with zeros, from the beginning of a frame or of a page in it: ext4 and XFS allocate blocks before they
write them.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sluice.errors import HistoryError

MAGIC = b"sluice-journal-2\n"
"""The first bytes of a journal."""
_HEAD = struct.Struct("<III")
_LENGTHS = struct.Struct("<II")
_PAGE_BYTES = 4096  # a file system writes whole pages
_CHUNK_BYTES = 1 << 20
_BEFORE_CHECKSUMS = b"\xff\xff\xff\xff"  # begins an Arrow IPC stream: the first version of journals was one


def make_frame(message: bytes | memoryview, previous: int) -> tuple[bytes, int]:
    """Return the frame of a message, and its checksum.

    `previous` is the checksum of the message before; 0 for the first message.
    """
    checksum = zlib.crc32(message, previous)
    lengths = _LENGTHS.pack(len(message), checksum)
    return b"".join((lengths, zlib.crc32(lengths).to_bytes(4, "little"), message)), checksum


def messages(path: Path) -> Iterator[bytes]:
    """Yield the messages of a journal, up to the end of what was written.

    Raises:
        HistoryError: the file was altered, or is no journal.
    """
    with path.open("rb") as file:
        begun = file.read(len(MAGIC))
        if begun.startswith(_BEFORE_CHECKSUMS):
            raise HistoryError(
                f"{path} is a journal without checksums, of an earlier version of Sluice; judge it with the version"
                " that wrote it"
            )
        if not MAGIC.startswith(begun) and not _is_torn(file, 0, len(MAGIC)):
            raise HistoryError(f"{path} is not a journal of Sluice (it begins with other bytes)")
        if begun == MAGIC:
            yield from _messages(path, file)


def _messages(path: Path, file: BinaryIO) -> Iterator[bytes]:
    previous = 0
    while (message := _message(path, file, previous)) is not None:
        previous = zlib.crc32(message, previous)
        yield message


def _message(path: Path, file: BinaryIO, previous: int) -> bytes | None:
    """Return the next message; None at the end, and at a frame that its writer did not finish before it died."""
    begin, head = file.tell(), file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    length, checksum, lengths_checksum = _HEAD.unpack(head)
    is_head_whole = zlib.crc32(head[: _LENGTHS.size]) == lengths_checksum
    message = file.read(length) if is_head_whole else b""
    if is_head_whole and len(message) < length:
        return None
    if is_head_whole and zlib.crc32(message, previous) == checksum:
        return message
    if _is_torn(file, begin, begin + len(head) + len(message)):
        return None
    raise _damage_error(path, begin)


def _is_torn(file: BinaryIO, begin: int, end: int) -> bool:
    """Return whether the file ends with zeros, from the beginning of a frame or from a page before the frame's end."""
    zeros_from = position = begin
    file.seek(begin)
    while chunk := file.read(_CHUNK_BYTES):
        written = chunk.rstrip(b"\0")
        zeros_from = position + len(written) if written else zeros_from
        position += len(chunk)
    page = -(-zeros_from // _PAGE_BYTES) * _PAGE_BYTES
    return zeros_from == begin or page < min(end, position)


def _damage_error(path: Path, begin: int) -> HistoryError:
    return HistoryError(
        f"{path} is damaged: what stands at byte {begin} does not have its checksum; copy it again, or judge the other"
        " journals without it"
    )
