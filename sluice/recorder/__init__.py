"""The recorder: it writes down the calls of SNS and SQS clients, as a history that can be judged.

It changes no call, and does not know who judges. `record` is imported when it is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.recorder.recording import Recording, record
else:
    from sluice.extras import facade

    __getattr__ = facade(__name__, "recorder", {"recording": ("Recording", "record")})

__all__ = ["Recording", "record"]
