"""A table of events as numpy columns: numbers, codes of texts that repeat, and 64-bit hashes of texts that differ.

A missing value is NONE in a column of signed numbers, and 0 in a column of hashes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.history.bundles import POSITION_DIGITS

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
"""Columns with many different texts, which the judge only compares, so that hashes are enough."""
_NUMBERED = ("sns_sequence_number", "sqs_sequence_number")
HASH_SUFFIX, _LOW = "_64", "_low"
HASH_SCHEMA = pa.schema(
    [*((f"{name}{HASH_SUFFIX}", pa.int64()) for name in HASHED), *((f"{name}{_LOW}", pa.int64()) for name in _NUMBERED)]
)
"""The schema of `hash_columns`. A sequence number has a hash of its first digits, and its last digits as a number."""
_WORD = 8
_NUMBER_DIGITS = 39
_LOW_DIGITS = 14
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_FINISHER = np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)

type Columns = dict[str, np.ndarray]
"""Values by the name of their column; all columns have one length."""


class Events:
    """Events of a table, column by column, as in `sluice.history.events`; texts are plain or dictionaries.

    Columns of HASHED may be hashes already. A column that the table lacks counts as empty.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table, self._names = table, frozenset(table.schema.names)
        self._arrays: dict[str, pa.Array] = {}
        self._coded: dict[str, tuple[np.ndarray, list[str | None]]] = {}
        self._numbers: dict[tuple[str, int], np.ndarray] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def numbers(self, name: str, none: int = NONE) -> np.ndarray:
        """Return a column of numbers, with `none` in place of missing values."""
        if (name, none) not in self._numbers:
            self._numbers[name, none] = (
                self._array(name).cast(pa.int64()).fill_null(none).to_numpy()
                if name in self._names
                else np.full(len(self), none, np.int64)
            )
        return self._numbers[name, none]

    def is_known(self, name: str) -> np.ndarray:
        """Return for each event whether the column has a value."""
        if (stored := self._stored_name(name)) not in self._names:
            return np.zeros(len(self), dtype=bool)
        return self._array(stored).is_valid().to_numpy(zero_copy_only=False)

    def is_false(self, name: str) -> np.ndarray:
        """Return for each event whether a boolean column is false."""
        if name not in self._names:
            return np.zeros(len(self), dtype=bool)
        return ~self._array(name).fill_null(True).to_numpy(zero_copy_only=False)  # noqa: FBT003 (the value)

    def codes(self, name: str) -> tuple[np.ndarray, list[str | None]]:
        """Return a column with few different texts as positions in a list of them; None is the last one in the list."""
        if name not in self._names:
            return np.zeros(len(self), np.int32), [None]
        if name not in self._coded:
            array = self._array(name)
            coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
            values = coded.dictionary.to_pylist()
            self._coded[name] = (coded.indices.cast(pa.int32()).fill_null(len(values)).to_numpy(), [*values, None])
        return self._coded[name]

    def texts(self, name: str) -> pa.Array:
        """Return the different texts in a column with few."""
        return pa.array(self.codes(name)[1][:-1], pa.string())

    def decode(self, name: str, decode: Callable[[str | None], Any], dtype: type) -> np.ndarray:
        """Return the result of `decode` for each text of a column with few different texts.

        Each text is decoded once.
        """
        codes, values = self.codes(name)
        return np.array([decode(value) for value in values], dtype=dtype)[codes]

    def is_equal(self, name: str, text: str) -> np.ndarray:
        """Return for each event whether a column with few different texts has this text."""
        return self.decode(name, lambda value: value == text, bool)

    def hashes(self, name: str) -> np.ndarray:
        """Return a column of texts as hashes."""
        if (stored := self._stored_name(name)) not in self._names:
            return np.zeros(len(self), np.uint64)
        array = self._array(stored)
        if pa.types.is_dictionary(array.type):  # each different text is hashed once
            return np.append(hashes(array.dictionary), np.uint64(0))[self.codes(name)[0]]
        return array.fill_null(0).to_numpy().view(np.uint64) if pa.types.is_integer(array.type) else hashes(array)

    def sequence_numbers(self, *names: str) -> tuple[np.ndarray, np.ndarray]:
        """Return (numbers, hashes): the last digits of sequence numbers as numbers, and the digits before as hashes.

        A number includes the position of an event in its bundle. The first column with a value counts. A text without
        39 digits has no number, but a hash.
        """
        low, high = np.full(len(self), NONE), np.zeros(len(self), dtype=np.uint64)
        for name in reversed(names):
            where = self.is_known(name)
            if not where.any():
                continue
            if self._stored_name(name) == name:
                low[where], high[where] = _sequence_numbers(self._array(name).drop_null())
            else:
                np.copyto(low, self.numbers(f"{name}{_LOW}"), where=where)
                np.copyto(high, self.hashes(name), where=where)
        return low, high

    def _stored_name(self, name: str) -> str:
        """Return the column that has the hashes of the texts of this one; if there is none, this one."""
        stored = f"{name}{HASH_SUFFIX}"
        return stored if stored in self._names else name

    def _array(self, name: str) -> pa.Array:
        if name not in self._arrays:
            column = self.table.column(name)
            is_whole = column.num_chunks == 1
            self._arrays[name] = column.chunk(0) if is_whole else column.unify_dictionaries().combine_chunks()
        return self._arrays[name]


def hash_columns(table: pa.Table) -> dict[str, pa.Array]:
    """Return the columns of HASH_SCHEMA for a table with texts; null for a missing text or number."""
    events, found = Events(table), dict[str, pa.Array]()
    for name in HASHED:
        if name in _NUMBERED:
            low, hashed = events.sequence_numbers(name)
            found[f"{name}{_LOW}"] = pa.array(low, mask=low == NONE)
        else:
            hashed = events.hashes(name)
        found[f"{name}{HASH_SUFFIX}"] = pa.array(hashed.view(np.int64), mask=hashed == 0)
    return {field: found[field] for field in HASH_SCHEMA.names}


def hashes(texts: pa.Array) -> np.ndarray:
    """Return a 64-bit hash of each text, never 0; 0 where there is none. The same in every process.

    Equal hashes count as equal texts. The chance that any two of n texts share a hash is n² / 2**65, which is one in
    3,700 for a hundred million texts. This never makes a false violation: messages whose ids or groups share a hash
    look doubled or reordered, so their groups are suspect, and the checker reads the texts of suspects. A changed text
    is missed if it has the hash of the published text, with a chance of 1 in 2**64 for each message.
    """
    found = np.zeros(len(texts), dtype=np.uint64)
    if texts.null_count == len(texts):
        return found
    texts = texts.cast(pa.string())
    dense = texts.drop_null() if texts.null_count else texts
    lengths = pc.binary_length(dense).to_numpy()
    hashed = _hash_words(_byte_rows(dense, lengths), lengths)
    if not texts.null_count:
        return hashed
    found[texts.is_valid().to_numpy(zero_copy_only=False)] = hashed
    return found


def hash_numbers(*numbers: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each row of whole numbers, never 0."""
    found = np.zeros(len(numbers[0]), dtype=np.uint64)
    for column in numbers:
        found = _mix_words(found, column.astype(np.uint64))
    return _finish_hashes(found)


def starts(ordered: np.ndarray) -> np.ndarray:
    """Return the positions at which a run of equal values begins."""
    return np.flatnonzero(np.concatenate((np.ones(len(ordered[:1]), dtype=bool), ordered[1:] != ordered[:-1])))


def _byte_rows(dense: pa.Array, lengths: np.ndarray) -> np.ndarray:
    """Return the texts as a matrix of bytes: a row for each text, filled up with zeros to whole words."""
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


def _hash_words(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    words = rows.view(np.uint64)
    shortest = int(lengths.min())
    found = _mix_words(np.zeros(len(rows), dtype=np.uint64), lengths.astype(np.uint64))  # "b" is not "a\0"
    for index in range(words.shape[1]):
        if index * _WORD < shortest:
            found = _mix_words(found, words[:, index])
        else:  # only texts of this length: a hash must not depend on the length of the other texts
            where = np.flatnonzero(lengths > index * _WORD)
            found[where] = _mix_words(found[where], words[where, index])
    return _finish_hashes(found)


def _mix_words(found: np.ndarray, words: np.ndarray) -> np.ndarray:
    found = (found ^ words) * _MULTIPLIER
    found ^= found >> _HALF
    found *= _FINISHER  # so that all of a word reaches all of the next
    return found


def _finish_hashes(found: np.ndarray) -> np.ndarray:
    found = found * _FINISHER
    found ^= found >> _HALF
    return np.maximum(found, np.uint64(1))


def _sequence_numbers(dense: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the last digits as numbers, and the other digits as hashes.

    For a text that is no sequence number, NONE and the hash of the whole text.
    """
    low, high = np.full(len(dense), NONE), np.zeros(len(dense), np.uint64)
    lengths, is_number = pc.binary_length(dense).to_numpy(), np.zeros(len(dense), dtype=bool)
    for position_digits in (0, POSITION_DIGITS):  # of a message, of an event of a bundle
        where = np.flatnonzero(lengths == _NUMBER_DIGITS + (position_digits and position_digits + 1))
        if not len(where):
            continue
        digits = dense if len(where) == len(dense) else dense.take(pa.array(where))
        if position_digits:
            digits = pc.replace_substring_regex(digits, r"\.([0-9]+)$", r"\1")
        is_whole = pc.and_(
            pc.equal(pc.binary_length(digits), _NUMBER_DIGITS + position_digits), pc.ascii_is_decimal(digits)
        ).to_numpy(zero_copy_only=False)
        if not is_whole.all():
            where, digits = where[is_whole], digits.filter(pa.array(is_whole))
            if not len(where):
                continue
        high[where] = hashes(pc.utf8_slice_codeunits(digits, 0, _NUMBER_DIGITS - _LOW_DIGITS))
        numbers = pc.utf8_slice_codeunits(digits, _NUMBER_DIGITS - _LOW_DIGITS).cast(pa.int64()).to_numpy()
        low[where] = numbers * 10 ** (POSITION_DIGITS - position_digits)
        is_number[where] = True
    if not is_number.all():
        high[~is_number] = hashes(dense.filter(pa.array(~is_number)))
    return low, high
