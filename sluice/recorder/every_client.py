"""Record every SNS and SQS client a program makes, without a change to the program: what `sluice record` starts.

Python imports a module called sitecustomize when it starts; `sluice record` puts one first on the path of its child
that calls `start` (https://docs.python.org/3/library/site.html, read 2026-11-22).
"""

import atexit
import functools
import logging
import os
import threading
from collections.abc import Mapping
from multiprocessing import parent_process, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.session

from sluice.errors import MessagingError
from sluice.extras import missing
from sluice.recorder.rows import OPERATIONS
from sluice.sdk import RECORD_FOLDER

if TYPE_CHECKING:
    from sluice.recorder.recording import Recording

GROUPS = "SLUICE_RECORD_ONE_GROUP_IN"
_log = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()
# A child that is forked meanwhile would wait for a thread that it does not have.
os.register_at_fork(
    before=_one_at_a_time.acquire, after_in_parent=_one_at_a_time.release, after_in_child=_one_at_a_time.release
)
_CUSTOM = Path(__file__).resolve().parent / "startup"


def environment(folder: Path, one_group_in: int, own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child whose clients are recorded.

    Args:
        folder: of the journals.
        one_group_in: of so many message groups one is kept.
        own: the environment it would have else.
    """
    library = Path(__file__).resolve().parents[2]
    path = [str(_CUSTOM), *filter(None, [own.get("PYTHONPATH")]), str(library)]
    return {**own, RECORD_FOLDER: str(folder.resolve()), GROUPS: str(one_group_in), "PYTHONPATH": os.pathsep.join(path)}


@functools.cache
def _recording() -> "Recording":
    """Return the recording of this process, begun at its first SNS or SQS client: others write no journal."""
    from sluice.recorder.recording import record  # noqa: PLC0415 (pyarrow is loaded by those who record)

    recording = record((), os.environ[RECORD_FOLDER], one_group_in=int(os.environ[GROUPS]))
    atexit.register(recording.close)
    util.register_after_fork(recording, _close_at_end)
    if parent_process() is not None:
        _close_at_end(recording)
    return recording


def _close_at_end(recording: "Recording") -> None:
    """Close the journal of a child of multiprocessing, which ends without `atexit`, after its own children have."""
    util.Finalize(None, recording.close, exitpriority=-100)


def _attach(client: Any) -> None:
    """Record a client; one that cannot be recorded works as before."""
    try:
        with _one_at_a_time:
            recording = _recording()
        if recording.is_on:
            recording.attach(client)
    except (MessagingError, ImportError) as error:
        needed = missing(error.name, "recorder") if isinstance(error, ModuleNotFoundError) and error.name else None
        _log.warning("not recorded: %s", needed or error)


def start() -> None:
    """Record each client that is made from now on in this process, and in those it forks, until it ends.

    A session's method is replaced: botocore's events belong to a session, and those of one say nothing of sessions that
    are made later; its plug-ins are "considered private" (botocore/plugin.py of 1.44.5, read 2026-11-26).
    """
    make_client = botocore.session.Session.create_client

    @functools.wraps(make_client)
    def make_recorded(self: Any, service_name: str, *arguments: Any, **more: Any) -> Any:
        client = make_client(self, service_name, *arguments, **more)
        if service_name in OPERATIONS:
            _attach(client)
        return client

    botocore.session.Session.create_client = make_recorded
