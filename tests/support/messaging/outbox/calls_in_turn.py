"""Publishing calls without threads, for relays in virtual time: nothing happens between two steps of a relay."""

from collections.abc import Sequence

from sluice.messaging.outbox.store import Head
from sluice.messaging.relay.calls import Answer, Publish, called


class CallsInTurn:
    """One call at a time, which has its answer when `begin` returns."""

    most = 1

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._answers: list[Answer] = []

    def begin(self, heads: Sequence[Head]) -> None:
        """Publish."""
        self._answers.append(called(self._publish, heads))

    def collect(self, _: float) -> list[Answer]:
        """Return the answer, if there is one."""
        answers, self._answers = self._answers, []
        return answers

    def __len__(self) -> int:
        return len(self._answers)
