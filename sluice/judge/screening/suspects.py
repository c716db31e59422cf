"""Find the groups that the checker has to check, by a cheap, conservative pass over the whole history.

A group is cleared only when everything about it is as it should be: every message was published once, after the one
before it was acknowledged, with ascending numbers; it was received exactly once from every queue, as published, in one
ascending sequence, each after the previous lease had ended; each was deleted in time, and its effect, where that is
recorded, lies between receive and delete; none waited while its queue said it was empty; and nothing unusual (a lost
answer, a visibility change, a dead letter, another attempt) happened. Every other group is suspect. So
every group with a violation is suspect, which tests verify.

`rollup` marks single messages as odd. Here each message is compared with those before it, in the order of the plan.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sluice.judge.checker import Activity, Expectation
from sluice.judge.checker.group import ENQUEUED_WITHIN_US
from sluice.judge.checker.rules.blocking import UNDERFILLED_MIN
from sluice.judge.reading.columns import NONE, Columns, starts
from sluice.judge.screening.compilation import compile_loop
from sluice.judge.screening.encode import NO_IDX
from sluice.judge.screening.rollup import is_known, queue_indexes

_US = 1_000_000
_BITS_MAX = 62


def groups(messages: Columns, expectation: Expectation) -> Columns:
    """Return one row for each group of what `rollup.messages` returns.

    Returns:
        `group`; `is_suspect`; `waited`, with the bit of each queue set (`waited_bit`) where a message had been there
        for a whole second when it came, which is suspect if that queue ever said it was empty; and for opportunities
        `received` (receives of messages of this run), `later` (messages that came behind another from the same queue)
        and `shared` (of them, in the same answer).
    """
    begins = starts(messages["group"])
    is_suspect_message, waited = mark_suspects(messages, expectation)
    is_suspect = np.logical_or.reduceat(is_suspect_message, begins)
    received, later, shared = (np.zeros(len(begins), dtype=np.int64) for _ in range(3))
    for queue_index in queue_indexes(expectation):
        of = _QueueMessages(messages, queue_index, begins)
        counts = np.add.reduceat(messages[f"count_{queue_index}"], begins)
        received += counts
        later += np.maximum(np.add.reduceat((messages[f"count_{queue_index}"] > 0).astype(np.int64), begins) - 1, 0)
        shared += of.count(_is_in_one_call(of))
        is_suspect |= of.count(_is_underfilled(of)) >= UNDERFILLED_MIN
    return {
        "group": messages["group"][begins],
        "is_suspect": is_suspect,
        "waited": np.bitwise_or.reduceat(waited, begins),
        "received": received,
        "later": later,
        "shared": shared,
    }


def mark_suspects(messages: Columns, expectation: Expectation) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays with a value for each message: whether it makes its group suspect, and where it waited.

    A suspect group is judged exactly afterwards. The second value has the bit of each queue (`waited_bit`) in which the
    message was available before it was received. Queue index 0 is the topic, of which only the order matters.
    """
    is_suspect_message, waited = (
        messages["is_odd"] | _is_unexpected(messages, expectation),
        np.zeros(len(messages["idx"]), dtype=np.int64),
    )
    begins = starts(messages["group"])
    for queue_index in (0, *queue_indexes(expectation)):
        of = _QueueMessages(messages, queue_index, begins)
        if queue_index == 0:
            is_suspect_message[of.where] |= _is_published_out_of_order(of)
            continue
        held_until_us = of.highest_before("free_us")
        from_us = _available_from_us(of, held_until_us, expectation)
        is_suspect_message[of.where] |= _is_received_out_of_order(of, held_until_us) | _is_handled_out_of_order(of)
        is_suspect_message[of.where] |= _has_waited_long(of, from_us, expectation)
        waited[of.where] |= np.where(_has_waited(of, from_us), waited_bit(queue_index), 0)
    return is_suspect_message, waited


def empty_answer_bits(activity: Mapping[str, Sequence[Activity]], expectation: Expectation) -> int:
    """Return the bits of the queues that ever gave an empty answer."""
    bits = 0
    for queue_index, queue in enumerate(expectation.queues, 1):
        if any(second.empty_count for second in activity.get(queue, ())):
            bits |= waited_bit(queue_index)
    return bits


def waited_bit(queue_index: int) -> int:
    """Return the bit of a queue in `waited`; with more than 62 queues the last ones share a bit."""
    return 1 << min(queue_index, _BITS_MAX)


class _QueueMessages:
    """Messages published (queue index 0) or received from a queue, each with the one before it in its group.

    `begins` has the position at which each group begins among the messages, `where` the positions of these messages.
    """

    def __init__(self, messages: Columns, queue_index: int, begins: np.ndarray) -> None:
        self._messages, self._queue_index, self._count = messages, queue_index, len(begins)
        self.where = np.flatnonzero(messages[f"count_{queue_index}"] > 0)
        sizes = np.diff(begins, append=len(messages["group"]))
        self._of_group = np.repeat(np.arange(len(begins)), sizes)[self.where]
        self._is_all = len(self.where) == len(messages["group"])
        self.is_second = np.ones(len(self.where), dtype=bool)
        self.is_second[starts(self._of_group)] = False

    def __getitem__(self, name: str) -> np.ndarray:
        column = self._messages[f"{name}_{self._queue_index}"]
        return column if self._is_all else column[self.where]

    def before(self, name: str) -> np.ndarray:
        """Return the value of the message before.

        For the first message of a group it is meaningless, see `is_second`.
        """
        here = self[name]
        return np.concatenate((here[:1], here[:-1]))

    def highest_before(self, name: str) -> np.ndarray:
        """Return the highest known value of all messages before in the group, NONE if there is none."""
        return _highest_before(self[name], self.is_second)

    def count(self, flags: np.ndarray) -> np.ndarray:
        """Return how many messages of each group have the flag."""
        return np.bincount(self._of_group[flags], minlength=self._count)


@compile_loop
def _highest_before(values: np.ndarray, is_second: np.ndarray) -> np.ndarray:
    found, highest = np.empty(len(values), np.int64), NONE
    for place in range(len(values)):
        if not is_second[place]:
            highest = NONE
        found[place] = highest
        highest = max(highest, values[place])
    return found


def _is_unexpected(messages: Columns, expectation: Expectation) -> np.ndarray:
    """Return whether a message was received before its publish, or not from exactly the expected queues."""
    is_suspect_message = (messages["idx"] == NO_IDX) | (messages["count_0"] <= 0)
    for queue_index in queue_indexes(expectation):
        is_owed = (messages["sent_to_0"] < 0) | (messages["sent_to_0"] == queue_index)
        is_suspect_message |= messages[f"count_{queue_index}"] != is_owed
        published_us, received_us = messages["invoked_us_0"], messages[f"answered_us_{queue_index}"]
        is_suspect_message |= is_known(published_us, received_us) & (received_us < published_us)
    return is_suspect_message | _is_skewed(messages, expectation)


def _is_skewed(messages: Columns, expectation: Expectation) -> np.ndarray:
    """Return whether a message was received from one queue too long after another."""
    times = [messages[f"answered_us_{queue_index}"] for queue_index in queue_indexes(expectation)]
    if expectation.fan_out_skew_seconds_max is None or not times:
        return np.zeros(len(messages["idx"]), dtype=bool)
    latest = np.maximum.reduce(times)
    earliest = np.where(latest == NONE, NONE, np.minimum.reduce([time - 1 for time in times]) + 1)
    return latest - earliest > int(expectation.fan_out_skew_seconds_max * _US)


def _is_in_one_call(of: _QueueMessages) -> np.ndarray:
    """Return whether a message stands right behind the one before it in the same call, at the same time."""
    is_same = of.is_second & is_known(of["call"], of["invoked_us"], of["answered_us"])
    for name in ("call", "invoked_us", "answered_us"):
        is_same &= of[name] == of.before(name)
    return is_same & (of["position"] > of.before("position"))


def _has_unordered_number(of: _QueueMessages) -> np.ndarray:
    """Return whether the number is not above the one before it, or cannot be compared with it."""
    low, before = of["low"], of.before("low")
    is_above = (low > before) & (before != NONE) & (of["high"] == of.before("high"))
    return of.is_second & ~is_above & ((low != NONE) | (before != NONE))


def _is_published_out_of_order(of: _QueueMessages) -> np.ndarray:
    """Return whether a message was published before the one before it was acknowledged, or with no higher number."""
    is_together = _is_in_one_call(of) & (of["count"] == 1) & (of.before("count") == 1)
    is_after = is_known(of["invoked_us"], of.before("answered_us")) & (of["invoked_us"] >= of.before("answered_us"))
    return of.is_second & ~(is_together | is_after) | _has_unordered_number(of)


def _is_received_out_of_order(of: _QueueMessages, held_until_us: np.ndarray) -> np.ndarray:
    """Return whether a message was received before earlier ones, while they were held, or with no higher number."""
    answered_us, before_us = of["answered_us"], of.before("answered_us")
    is_after = is_known(answered_us, before_us, held_until_us)
    is_after &= (answered_us > before_us) & (answered_us >= held_until_us)
    return of.is_second & ~(_is_in_one_call(of) | is_after) | _has_unordered_number(of)


def _is_handled_out_of_order(of: _QueueMessages) -> np.ndarray:
    """Return whether the effect of a message was begun before those of all before it were committed."""
    from_us, until_us = of["handled_from_us"], of.highest_before("handled_until_us")
    return is_known(from_us, until_us) & (from_us < until_us)


def _is_underfilled(of: _QueueMessages) -> np.ndarray:
    """Return whether the answer before had room for more, and this message had been there."""
    is_there = is_known(of["since_us"], of.before("invoked_us"))
    is_there &= of["since_us"] + ENQUEUED_WITHIN_US < of.before("invoked_us")
    return of.is_second & of.before("is_alone") & is_there & (of["call"] != of.before("call"))


def _available_from_us(of: _QueueMessages, held_until_us: np.ndarray, expectation: Expectation) -> np.ndarray:
    """Return when a message could have been received, NONE if unknown."""
    from_us = np.maximum(of["since_us"] + ENQUEUED_WITHIN_US, held_until_us) + expectation.clock_bound_us
    return np.where(is_known(of["since_us"], of["invoked_us"]), from_us, NONE)


def _has_waited(of: _QueueMessages, from_us: np.ndarray) -> np.ndarray:
    """Return whether a whole second passed between the time a message could have been received and its receive."""
    return is_known(from_us) & (-(-from_us // _US) < of["invoked_us"] // _US)


def _has_waited_long(of: _QueueMessages, from_us: np.ndarray, expectation: Expectation) -> np.ndarray:
    """Return whether a message waited for longer than is allowed."""
    waits = (expectation.passed_over_seconds_max, expectation.stuck_seconds_max)
    allowed = [seconds for seconds in waits if seconds is not None]
    if not allowed:
        return np.zeros(len(from_us), dtype=bool)
    return is_known(from_us) & (of["invoked_us"] - from_us > int(min(allowed) * _US))
