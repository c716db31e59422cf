"""The oracle judges a whole recording, group by group, beside the verdict on it.

It knows more than the checker: that nothing happened before the recording, and which queues each topic reached. So it
may call a recording impossible that the checker has to leave open, but never one that is VALID.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import override

from sluice.history.events import HistoryEvent, Kind
from sluice.judge.checker import Expectation, QueueContext
from sluice.judge.checker.verdict import Verdict
from sluice.judge.engine import JudgeEngine, read_into_memory
from sluice.judge.groups import Findings
from sluice.recorder.journal import events_of
from tests.support.histories.simulated_recordings import RecordedLife
from tests.support.oracle.search import LargeSearchError, is_possible

_STATES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class JudgedLife:
    """The verdict on a recording, and whether the oracle found a run that explains all of it; None if it gave up."""

    verdict: Verdict
    is_possible: bool | None


class _ListeningEngine(JudgeEngine):
    """Remembers what the checker knows beside the events."""

    known: tuple[Expectation, QueueContext] | None = None

    @override
    def findings(self, suspects: Iterable[str], expectation: Expectation, surrounded: QueueContext) -> Findings:
        self.known = expectation, surrounded
        return super().findings(list(suspects), expectation, surrounded)


def judge(recording: RecordedLife) -> JudgedLife:
    """Return the checker's verdict and the oracle's result on a whole recording."""
    history = read_into_memory(recording.folder)
    assert history is not None
    listening = _ListeningEngine(history)
    verdict = recording.check(listening)
    assert listening.known is not None
    expectation, around = listening.known
    groups: dict[str, list[HistoryEvent]] = defaultdict(list)
    for event in events_of(history.table):
        if event.message_group_id is not None:
            groups[event.message_group_id].append(event)
    is_open = False
    for events in groups.values():
        try:
            if not is_possible(
                _name_messages(events), expectation, around, recording.subscribed, states_max=_STATES_MAX
            ):
                return JudgedLife(verdict, is_possible=False)
        except LargeSearchError:
            is_open = True
    return JudgedLife(verdict, is_possible=None if is_open else True)


def _name_messages(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Return the events; dead letters and moved messages get the idx of their message, found by id or else by body."""
    published = {event.idx for event in events if event.kind == Kind.PUBLISHED}
    of_body: dict[str | None, set[int | None]] = defaultdict(set)
    of_id: dict[str | None, int | None] = {}
    for event in events:
        if event.kind == Kind.PUBLISHED:
            of_body[event.body_hash].add(event.idx)
        elif event.kind == Kind.RECEIVED and event.idx in published:
            of_id[event.sqs_message_id] = event.idx
    named = []
    for event in events:
        if event.kind == Kind.RECEIVED and event.idx not in published:
            known = of_id.get(event.sqs_message_id, of_id.get(event.deduplication_id))
            same = of_body[event.body_hash]
            idx = next(iter(same)) if known is None and len(same) == 1 else known
            named.append(event if idx is None else replace(event, idx=idx))
        else:
            named.append(event)
    return named
