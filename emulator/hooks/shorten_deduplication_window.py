"""Runs inside LocalStack at start: queues whose name asks for it get a short deduplication window.

LocalStack fixes the window at 300 s. A queue named `…-window3-…` gets 3 s, so that both sides of the window can be seen
in a test; every other queue keeps 300 s. This modifies the emulator, and the contract run reports it as modified.
"""

import functools
import re

from localstack.services.sqs import constants, models

_original_put = models.FifoQueue.put


@functools.wraps(_original_put)
def _put(self, *args, **kwargs):
    requested = re.search(r"-window(\d+)-", self.name)
    if requested is None:
        return _original_put(self, *args, **kwargs)
    # LocalStack knows one constant for all queues. Rather than change it under other queues' feet, forget what is
    # older than this queue's own window before the original looks.
    oldest = models.time.time() - int(requested[1])
    for key in [key for key, message in self.deduplication.items() if message.priority <= oldest]:
        del self.deduplication[key]
    return _original_put(self, *args, **kwargs)


assert constants.DEDUPLICATION_INTERVAL_IN_SEC == 300, "not the LocalStack this hook was written for"
models.FifoQueue.put = _put
