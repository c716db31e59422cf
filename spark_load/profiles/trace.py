"""Recorded arrivals, which a profile replays: the instant, group and size of each message, in a Parquet file.

A group is stored as its rank: 0 has the most messages. The file has no name of a group, and nothing of a body.
"""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from sluice import limits
from sluice.errors import ConfigError

ARRIVALS_MAX = 5_000_000
SECONDS_MAX = 86_400  # the longest duration of a load
FRAME_BYTES = 160  # about the size of a body without its payload: run, group, idx and JSON
OVERHEAD_BYTES = 512  # an upper bound of it, with the message's attributes
PAYLOAD_BYTES_MAX = limits.MESSAGE_BYTES_MAX - OVERHEAD_BYTES
_BINS_MAX = 60
_SECONDS_MIN = 1.0  # the duration of a trace whose messages all have one instant
_US = 1_000_000
_SCHEMA = pa.schema(
    [
        pa.field("offset_us", pa.int64(), nullable=False),
        pa.field("group_rank", pa.int32(), nullable=False),
        pa.field("body_bytes", pa.int32(), nullable=False),
    ]
)


@checked_dataclass(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class Replay:
    """Recorded arrivals that a profile replays.

    Args:
        file: name of the Parquet file in the profile's folder; `sluice load profile-from` writes it.
        speed: how many times faster they come than they were recorded.
        sha256: of the file. This field and the next ones are computed from the file; a profile does not give them.
        hottest_share: share of the messages in the group that has the most.
        mean_bytes: mean size of a body.
        silence_seconds: longest time without a message, as recorded.
    """

    file: Annotated[str, Field(pattern=r"^[^/\\]{1,200}\.parquet$")]
    speed: Annotated[float, Field(ge=0.01, le=1_000)] = 1
    sha256: str = ""
    hottest_share: Annotated[float, Field(ge=0, le=1)] = 0
    mean_bytes: Annotated[float, Field(ge=0)] = 0
    silence_seconds: Annotated[float, Field(ge=0)] = 0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Messages in the order in which they came.

    Args:
        offset_us: when, in microseconds since the first, ascending.
        group_rank: of its group; the group with the most messages has 0.
        body_bytes: size of its body.
    """

    offset_us: Any
    group_rank: Any
    body_bytes: Any

    def __len__(self) -> int:
        return len(self.offset_us)

    @property
    def group_counts(self) -> Any:
        """Return how many messages each group has, by rank: descending."""
        return np.bincount(self.group_rank)

    @property
    def longest_pause_us(self) -> int:
        """Return the longest time between two messages, in microseconds."""
        return int(np.diff(self.offset_us, prepend=0).max())

    def offsets_us(self, speed: float) -> Any:
        """Return the offsets of all messages at another speed."""
        return np.rint(self.offset_us / speed).astype(np.int64)


def payload_bytes(body_bytes: Any) -> Any:
    """Return the sizes of the payloads: the bodies' without their frame, at most the largest that is allowed."""
    return np.clip(body_bytes - FRAME_BYTES, 0, PAYLOAD_BYTES_MAX)


def rank_arrivals(instants_us: Any, groups: Any, body_bytes: Any) -> Arrivals:
    """Return the arrivals in order, their groups ranked from 0 by count, then by first arrival."""
    order = np.argsort(instants_us, kind="stable")
    instants, in_order = instants_us[order], groups[order]
    _, first, codes, counts = np.unique(in_order, return_index=True, return_inverse=True, return_counts=True)
    ranks = np.empty(len(counts), np.int32)
    ranks[np.lexsort((first, -counts))] = np.arange(len(counts), dtype=np.int32)
    return Arrivals(instants - instants[0], ranks[codes], body_bytes[order].astype(np.int32))


def write(arrivals: Arrivals, path: Path) -> None:
    """Write arrivals to a file of a few bytes a message.

    Raises:
        OSError: it cannot be written.
    """
    columns = (arrivals.offset_us, arrivals.group_rank, arrivals.body_bytes)
    pq.write_table(
        pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
        ),
        path,
        compression="zstd",
        use_dictionary=["group_rank", "body_bytes"],
        column_encoding={"offset_us": "DELTA_BINARY_PACKED"},
        store_schema=False,
    )


def read(path: Path) -> tuple[Arrivals, str]:
    """Return the arrivals in a file, and its SHA-256.

    Raises:
        ConfigError: the file is missing, too large, or not one that `write` wrote.
    """
    try:
        content = path.read_bytes()
        file = pq.ParquetFile(pa.BufferReader(content))
        if file.metadata.num_rows > ARRIVALS_MAX:
            raise ConfigError(
                f"the trace {path} has {file.metadata.num_rows:,} arrivals, allowed is at most {ARRIVALS_MAX:,}; cut it"
            )
        table = file.read()
    except FileNotFoundError as error:
        raise ConfigError(
            f"the trace {path} is not there, needed beside the profile is the file that `sluice load profile-from`"
            " wrote; copy both"
        ) from error
    except (OSError, pa.ArrowException) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"the trace {path} cannot be read ({why}); make it again: sluice load profile-from"
        ) from error
    if table.schema.names != _SCHEMA.names or [field.type for field in table.schema] != [f.type for f in _SCHEMA]:
        raise ConfigError(
            f"the trace {path} has the columns {', '.join(table.schema.names)[:80]}, allowed are"
            f" {', '.join(_SCHEMA.names)} as `sluice load profile-from` writes them"
        )
    found = Arrivals(*(column.to_numpy() for column in table.columns))
    if not len(found) or any(column.null_count for column in table.columns) or not _is_sane(found):
        raise ConfigError(
            f"the trace {path} is empty or damaged: allowed are instants from 0, ascending, groups by rank and bodies"
            f" of at most {limits.MESSAGE_BYTES_MAX:,} bytes; make it again: sluice load profile-from"
        )
    return found, hashlib.sha256(content).hexdigest()


def _is_sane(arrivals: Arrivals) -> bool:
    if arrivals.offset_us[0] != 0 or min(arrivals.group_rank.min(), arrivals.body_bytes.min()) < 0:
        return False
    if arrivals.body_bytes.max() > limits.MESSAGE_BYTES_MAX:
        return False
    if arrivals.group_rank.max() >= len(arrivals) or np.any(np.diff(arrivals.offset_us) < 0):
        return False
    counts = arrivals.group_counts
    return bool(counts.min() > 0 and np.all(np.diff(counts) <= 0))


def profile_fields(path: Path, speed: float) -> dict[str, Any]:
    """Return the fields of a profile that its trace determines, by name: phases, groups, sizes, and `replay`.

    The rates serve estimates and the code that needs the highest rate; the messages themselves come as recorded.

    Raises:
        ConfigError: as `read` does; or the arrivals take longer than a load may.
    """
    arrivals, sha256 = read(path)
    seconds = max(float(arrivals.offset_us[-1]) / _US / speed, _SECONDS_MIN)
    if seconds > SECONDS_MAX:
        raise ConfigError(
            f"the trace {path} lasts {math.ceil(seconds):,} s at speed {speed:g}, allowed is at most {SECONDS_MAX:,} s;"
            " cut it with --from-seconds and --until-seconds of `sluice load profile-from`, or raise its speed"
        )
    bins = int(min(_BINS_MAX, max(1, seconds // 1)))
    counts, _ = np.histogram(arrivals.offset_us / _US / speed, bins=bins, range=(0, seconds))
    width = seconds / bins
    return {
        "phases": [{"duration_seconds": width, "messages_per_second": float(count / width)} for count in counts],
        "group_count": len(arrivals.group_counts),
        "payload_bytes": int(payload_bytes(arrivals.body_bytes.max())),
        "replay": {
            "file": path.name,
            "speed": speed,
            "sha256": sha256,
            "hottest_share": float(arrivals.group_counts[0] / len(arrivals)),
            "mean_bytes": float(arrivals.body_bytes.mean()),
            "silence_seconds": arrivals.longest_pause_us / _US,
        },
    }
