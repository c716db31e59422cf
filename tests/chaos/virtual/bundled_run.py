"""Virtual runs whose relay sends events of a group in bundles, and whose handler rejects some events of them."""

from pathlib import Path

from sluice.declaration import Commit, Consumer, Gaps, Poison
from sluice.messaging.outbox.store import Store
from sluice.messaging.worker.processing.processor import MessageProcessor
from tests.chaos.virtual.schedules import CONSUMER, Story
from tests.chaos.virtual.virtual_run import Process, VirtualRun
from tests.support.messaging.world import TOPIC

_POISON_ONE_IN = 6
"""One event in so many is rejected: over time in each place of a bundle, as bundles have at most five events."""


def is_poison(number: int) -> bool:
    """Return whether the handler rejects the event of that number."""
    return number % _POISON_ONE_IN == 1


class BundledRun(VirtualRun):
    """The product with bundles: poison in a bundle dies alone, and its group goes on."""

    bundle_events_max = 5

    def __init__(
        self,
        story: Story,
        folder: Path,
        *,
        processor: type[MessageProcessor] = MessageProcessor,
        kind_of_store: type[Store] = Store,
        commit: Commit = Commit.EVENT,
    ) -> None:
        self.processor, self._kind_of_store = processor, kind_of_store
        self.declared = Consumer(
            name=CONSUMER,
            visibility_timeout_seconds=5,
            stop_timeout_seconds=4,
            processing_seconds=0.5,
            max_attempts=95,  # five events may use them up within half of 1,000 receives; no death by attempts is due
            poison=Poison.SKIP,
            gaps=Gaps.HALT,
            commit=commit,
        )
        super().__init__(story, folder)
        self.switch_bundles(self.bundle_events_max)

    def new_relay(self) -> Process:
        """Return a relay with the run's store."""
        self.store = self._kind_of_store(self.engine, TOPIC, clock=self.clock)
        return super().new_relay()

    def is_poison(self, number: int) -> bool:
        """Return whether the handler rejects the event of that number."""
        return is_poison(number)
