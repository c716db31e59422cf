"""A table of events as numpy columns: numbers as they are, few texts as codes, many texts hashed to 64 bits.

What is not there is NONE in a column of signed numbers, and 0 in one of hashes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NONE = int(np.iinfo(np.int64).min)
HASHED = (
    "call_id",
    "deduplication_id",
    "sns_message_id",
    "sns_sequence_number",
    "sqs_message_id",
    "sqs_sequence_number",
    "receipt_handle_hash",
    "body_hash",
    "attributes_hash",
)
"""Columns of many texts, of which the judge needs no more than hashes."""
_NUMBERED = ("sns_sequence_number", "sqs_sequence_number")
_HASH, _LOW = "_64", "_low"
HASH_SCHEMA = pa.schema(
    [*((f"{name}{_HASH}", pa.int64()) for name in HASHED), *((f"{name}{_LOW}", pa.int64()) for name in _NUMBERED)]
)
"""Of `hash_columns`. A sequence number has the hash of its first digits, and its last ones as a number."""
_WORD = 8
_NUMBER_DIGITS = 39
_LOW_DIGITS = 18
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_FINISHER = np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)

type Columns = dict[str, np.ndarray]
"""Name to values, all of one length."""


class Events:
    """Events of a table, column by column, as in `sluice.history.events`; texts are plain or dictionaries.

    Those of HASHED may be hashes already.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._coded: dict[str, tuple[np.ndarray, list[str | None]]] = {}
        self._numbers: dict[tuple[str, int], np.ndarray] = {}

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def numbers(self, name: str, none: int = NONE) -> np.ndarray:
        """Return a column of numbers, `none` where there is none."""
        if (name, none) not in self._numbers:
            self._numbers[name, none] = self._array(name).cast(pa.int64()).fill_null(none).to_numpy()
        return self._numbers[name, none]

    def is_known(self, name: str) -> np.ndarray:
        """Return where the column says something."""
        return self._array(self._stored(name)).is_valid().to_numpy(zero_copy_only=False)

    def is_false(self, name: str) -> np.ndarray:
        """Return where a column of truths says that it is not so."""
        return ~self._array(name).fill_null(True).to_numpy(zero_copy_only=False)  # noqa: FBT003 (the value)

    def codes(self, name: str) -> tuple[np.ndarray, list[str | None]]:
        """Return a column of few texts as places in a list of them; None is the last of the list."""
        if name not in self._coded:
            array = self._array(name)
            coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
            values = coded.dictionary.to_pylist()
            self._coded[name] = (coded.indices.cast(pa.int32()).fill_null(len(values)).to_numpy(), [*values, None])
        return self._coded[name]

    def decoded(self, name: str, decode: Callable[[str | None], Any], dtype: type) -> np.ndarray:
        """Return what `decode` says of each text in a column of few; it is asked once for each."""
        codes, values = self.codes(name)
        return np.array([decode(value) for value in values], dtype=dtype)[codes]

    def hashes(self, name: str) -> np.ndarray:
        """Return a column of texts as hashes."""
        array = self._array(self._stored(name))
        if pa.types.is_dictionary(array.type):  # each is hashed once
            codes, values = self.codes(name)
            return hashes(pa.array(values, pa.string()))[codes]
        return array.fill_null(0).to_numpy().view(np.uint64) if pa.types.is_integer(array.type) else hashes(array)

    def sequence_numbers(self, *names: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the last digits of sequence numbers as numbers, and the others hashed; of the first that has one.

        What has not 39 digits has no number; it still has a hash.
        """
        low, high = np.full(len(self), NONE), np.zeros(len(self), dtype=np.uint64)
        for name in reversed(names):
            where = np.flatnonzero(self.is_known(name))
            if not len(where):
                continue
            if self._stored(name) == name:
                low[where], high[where] = _sequence_numbers(self._array(name).drop_null())
            else:
                low[where], high[where] = self.numbers(f"{name}{_LOW}")[where], self.hashes(name)[where]
        return low, high

    def _stored(self, name: str) -> str:
        """Return the column that has the hashes of the texts of this one; if there is none, this one."""
        stored = f"{name}{_HASH}"
        return stored if stored in self._table.schema.names else name

    def _array(self, name: str) -> pa.Array:
        column = self._table.column(name)
        if column.num_chunks == 1:
            return column.chunk(0)
        return column.unify_dictionaries().combine_chunks() if column.num_chunks else pa.array([], column.type)


def hash_columns(table: pa.Table) -> dict[str, pa.Array]:
    """Return the columns of HASH_SCHEMA of a table with the texts; null where there is no text, or no number."""
    events, found = Events(table), dict[str, pa.Array]()
    for name in HASHED:
        if name in _NUMBERED:
            low, hashed = events.sequence_numbers(name)
            found[f"{name}{_LOW}"] = pa.array(low, mask=low == NONE)
        else:
            hashed = events.hashes(name)
        found[f"{name}{_HASH}"] = pa.array(hashed.view(np.int64), mask=hashed == 0)
    return {field: found[field] for field in HASH_SCHEMA.names}


def hashes(texts: pa.Array) -> np.ndarray:
    """Return a 64-bit hash of each text, never 0; 0 where there is none. The same in every process."""
    found = np.zeros(len(texts), dtype=np.uint64)
    if texts.null_count == len(texts):
        return found
    texts = texts.cast(pa.string())
    dense = texts.drop_null() if texts.null_count else texts
    lengths = pc.binary_length(dense).to_numpy()
    hashed = _mixed(_rows(dense, lengths), lengths)
    if not texts.null_count:
        return hashed
    found[texts.is_valid().to_numpy(zero_copy_only=False)] = hashed
    return found


def mixed(*numbers: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each row of whole numbers, never 0."""
    found = np.zeros(len(numbers[0]), dtype=np.uint64)
    for column in numbers:
        found = _stirred(found, column.astype(np.uint64))
    return _finished(found)


def starts(ordered: np.ndarray) -> np.ndarray:
    """Return where each stretch of the same value begins."""
    return np.flatnonzero(np.concatenate((np.ones(len(ordered[:1]), dtype=bool), ordered[1:] != ordered[:-1])))


def _rows(dense: pa.Array, lengths: np.ndarray) -> np.ndarray:
    """Return the texts as a matrix of bytes, each in whole words, zeros behind."""
    width = int(lengths.max())
    if int(lengths.min()) != width:
        dense = pc.ascii_rpad(dense, width, "\0")
    _, offsets, data = dense.buffers()
    count = len(dense)
    begin = int(np.frombuffer(offsets, dtype=np.int32, count=1, offset=4 * dense.offset)[0])
    rows = np.zeros((count, -(-max(1, width) // _WORD) * _WORD), dtype=np.uint8)
    if width:
        rows[:, :width] = np.frombuffer(data, dtype=np.uint8, count=count * width, offset=begin).reshape(count, width)
    return rows


def _mixed(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    words = rows.view(np.uint64)
    shortest = int(lengths.min())
    found = _stirred(np.zeros(len(rows), dtype=np.uint64), lengths.astype(np.uint64))  # "b" is not "a\0"
    for index in range(words.shape[1]):
        if index * _WORD < shortest:
            found = _stirred(found, words[:, index])
        else:  # only of those that are so long: a hash does not depend on what stands beside
            where = np.flatnonzero(lengths > index * _WORD)
            found[where] = _stirred(found[where], words[where, index])
    return _finished(found)


def _stirred(found: np.ndarray, words: np.ndarray) -> np.ndarray:
    found = (found ^ words) * _MULTIPLIER
    found ^= found >> _HALF
    found *= _FINISHER  # so that all of a word reaches all of the next
    return found


def _finished(found: np.ndarray) -> np.ndarray:
    found = found * _FINISHER
    found ^= found >> _HALF
    return np.maximum(found, np.uint64(1))


def _sequence_numbers(dense: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    lengths = pc.binary_length(dense).to_numpy()
    rows = _rows(dense, lengths)
    if rows.shape[1] < _NUMBER_DIGITS:
        return np.full(len(rows), NONE), _mixed(rows, lengths)
    head, digits = rows[:, : _NUMBER_DIGITS - _LOW_DIGITS], rows[:, _NUMBER_DIGITS - _LOW_DIGITS : _NUMBER_DIGITS]
    low = np.zeros(len(rows), dtype=np.int64)
    for index in range(_LOW_DIGITS):
        low = low * 10 + (digits[:, index].astype(np.int64) - ord("0"))
    is_number = (lengths == _NUMBER_DIGITS) & ((digits - np.uint8(ord("0"))) <= 9).all(axis=1)
    others = np.zeros((len(rows), -(-head.shape[1] // _WORD) * _WORD), dtype=np.uint8)
    others[:, : head.shape[1]] = head
    return np.where(is_number, low, NONE), _mixed(others, lengths)
