"""What one history written by hand is to show."""

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.history.events import Event
from sluice.judge.checker import Expectation, Finding, QueueContext
from sluice.judge.checker.verdict import Violation
from tests.support.histories.by_hand import EXPECTATION

_NOTHING_AROUND = QueueContext()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A history that shows an anomaly, and one that nearly does.

    Args:
        anomaly: its id.
        events: the history that shows it and no other.
        idxs: the violation's, as are sentence, witness and queue.
        near_miss: a history without any anomaly that counts, and without this one.
        expectation: of both.
        around: both.
        near_expectation: of the near miss, where that is what differs; None when it does not.
        near_around: likewise.
        also_seen: lawful things the history cannot but show.
    """

    anomaly: str
    events: Sequence[Event]
    idxs: tuple[int, ...]
    sentence: str
    witness: tuple[Event, ...]
    near_miss: Sequence[Event]
    queue: str | None = "billing"
    expectation: Expectation = EXPECTATION
    around: QueueContext = _NOTHING_AROUND
    near_expectation: Expectation | None = None
    near_around: QueueContext | None = None
    also_seen: frozenset[str] = frozenset()

    @property
    def violation(self) -> Violation:
        """Return what is to be found, whole."""
        return Violation(
            anomaly=self.anomaly,
            message_group_id="g1",
            queue=self.queue,
            idxs=self.idxs,
            sentence=self.sentence,
            witness=self.witness,
        )

    def found(self, finding: Finding) -> list[Violation]:
        """Return all that was found, without the lawful things it cannot but show."""
        return [
            *finding.violations,
            *(violation for violation in finding.seen if violation.anomaly not in self.also_seen),
        ]
