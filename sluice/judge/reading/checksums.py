"""Checksums of a Parquet file, in a file beside it: Parquet has checksums for pages, but none for the footer.

The file `.name.crc` has the format of Hadoop, with a CRC-32 for each chunk of bytes. Hadoop and Spark verify it on
local file systems, and accept a file without it.

https://github.com/apache/hadoop/blob/trunk/hadoop-common-project/hadoop-common/src/main/java/org/apache/hadoop/fs/ChecksumFileSystem.java
(read 2026-11-23).
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from sluice.errors import HistoryError

_HEAD = struct.Struct(">4sI")
_SUM = struct.Struct(">I")
_MAGIC = b"crc\0"
_CHUNK_BYTES = 65_536


def beside(path: Path) -> Path:
    """Return the path of the file with another file's checksums."""
    return path.with_name(f".{path.name}.crc")


def write(path: Path) -> None:
    """Write the checksums of a file that is complete."""
    beside(path).write_bytes(_HEAD.pack(_MAGIC, _CHUNK_BYTES) + b"".join(_sums(path, _CHUNK_BYTES)))


def require(path: Path) -> None:
    """Refuse a file that does not match its checksums; a file without checksums is accepted.

    Raises:
        HistoryError: the file or its checksums were altered.
    """
    try:
        stored = beside(path).read_bytes()
    except FileNotFoundError:
        return
    magic, chunk_bytes = _HEAD.unpack(stored[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    is_whole = magic == _MAGIC and chunk_bytes > 0
    if not is_whole or b"".join(_sums(path, chunk_bytes)) != stored[_HEAD.size :]:
        raise HistoryError(
            f"{path} is damaged: it does not have the checksums in {beside(path).name}; copy both again, or judge the"
            " journals it was made of"
        )


def _sums(path: Path, chunk_bytes: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(chunk_bytes):
            yield _SUM.pack(zlib.crc32(chunk))
