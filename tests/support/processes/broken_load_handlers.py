"""Handlers of a load test that break the worker which imports them, each consumer's in a different way."""

import os
import sys
from unittest.mock import patch

from sluice.messaging import failpoints
from sluice.messaging.worker import build
from sluice.testing.load.effects import write
from tests.support.messaging.broken_workers import DeletesFirst, KeepsNoInbox

__all__ = ["write"]

is_without_inbox = sys.argv[sys.argv.index("--consumer") + 1] == "billing"
patch.object(build, "MessageProcessor", KeepsNoInbox if is_without_inbox else DeletesFirst).start()
# Each is slow where it can be found out: with the effect and without the delete, or the other way round.
os.environ[failpoints.VARIABLE] = "after_commit=0.5" if is_without_inbox else "after_receive=0.5"
