"""`sluice`, broken in what it does with bundles: the negative controls. SLUICE_BROKEN_FUNCTION names the mistake."""

import os
import runpy
from unittest.mock import patch

from sluice.cli.services import relay
from sluice.messaging.worker import build
from tests.support.messaging.broken_workers import AcknowledgesAfterTheFirst, DiesWithItsNeighbours
from tests.support.messaging.outbox.broken_stores import ForgetsBoundaries
from tests.support.processes import judged_function

MISTAKES = {
    "forget-boundaries": (relay, "Store", ForgetsBoundaries),
    "die-with-neighbours": (build, "MessageProcessor", DiesWithItsNeighbours),
    "acknowledge-after-the-first": (build, "MessageProcessor", AcknowledgesAfterTheFirst),
}
"""By name: the module, and the name in it that means the broken class."""

if __name__ == "__main__":
    patch.object(*MISTAKES[os.environ[judged_function.MISTAKE]]).start()
    runpy.run_module("sluice", run_name="__main__")
