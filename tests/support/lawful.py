"""A pytest plugin that lets the simulator use the freedom of AWS: short answers, and groups in any order.

AWS promises neither how many messages a receive returns nor which group comes first [RCV-10, RCV-08].
"""

import random
from collections.abc import Iterator
from typing import Any

from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.queues.fifo import FifoQueue
from sluice.simulator.model.queues.queue import SimulatedQueue

_rng = random.Random(17)  # noqa: S311 (the same answers in every run)
_receive, _candidates = SimulatedQueue.receive, FifoQueue._candidates


def _some(self: SimulatedQueue, most: int, **rest: Any) -> list[QueuedMessage]:
    return _receive(self, _rng.randint(1, most), **rest)


def _in_any_order(self: FifoQueue, now: float) -> Iterator[QueuedMessage]:
    groups = list(self._rotation)
    _rng.shuffle(groups)
    self._rotation = dict.fromkeys(groups)
    yield from _candidates(self, now)


SimulatedQueue.receive = _some  # type: ignore[method-assign]
FifoQueue._candidates = _in_any_order  # type: ignore[method-assign]
