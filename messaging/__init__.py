"""What producers and consumers run, so that the promises do not stop at the queue: outbox, relay, and their tools.

A producer needs `Outbox` and `Event`; everything else is behind `python -m messaging`.
"""

from messaging.envelope import Event
from messaging.outbox import Outbox

__all__ = ["Event", "Outbox"]
