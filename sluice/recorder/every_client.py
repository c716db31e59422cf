"""Record every SNS and SQS client of an unchanged program, which `sluice record` starts.

Python imports a module called sitecustomize when it starts; `sluice record` puts one first on the path of its child
that calls `start` (https://docs.python.org/3/library/site.html, read 2026-11-22).
"""

import functools
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore

from sluice.errors import MessagingError
from sluice.extras import missing
from sluice.recorder.rows import OPERATIONS
from sluice.sdk import RECORD_FOLDER

if TYPE_CHECKING:
    from sluice.recorder.recording import Recording

GROUPS = "SLUICE_RECORD_ONE_GROUP_IN"
_log = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()
# A child forked while another thread has the lock would wait for ever: that thread is not in the child.
os.register_at_fork(
    before=_one_at_a_time.acquire, after_in_parent=_one_at_a_time.release, after_in_child=_one_at_a_time.release
)
_CUSTOM = Path(__file__).resolve().parent / "startup"


def environment(folder: Path, one_group_in: int, own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child whose clients are recorded.

    Args:
        folder: the journals' folder.
        one_group_in: one of so many message groups is recorded.
        own: the environment of the child without recording.
    """
    library = Path(__file__).resolve().parents[2]
    path = [str(_CUSTOM), *filter(None, [own.get("PYTHONPATH")]), str(library)]
    return {**own, RECORD_FOLDER: str(folder.resolve()), GROUPS: str(one_group_in), "PYTHONPATH": os.pathsep.join(path)}


@functools.cache
def _recording() -> "Recording":
    """Return the recording of this process, which begins at its first SNS or SQS client.

    Other processes write no journal.
    """
    from sluice.recorder.recording import record  # noqa: PLC0415 (pyarrow is loaded by those who record)

    return record((), os.environ[RECORD_FOLDER], one_group_in=int(os.environ[GROUPS]), closes_itself=True)


def _attach(client: Any) -> None:
    """Record a client; a client that cannot be recorded works as before."""
    try:
        with _one_at_a_time:
            recording = _recording()
        if recording.is_on:
            recording.attach(client)
    except (MessagingError, ImportError) as error:
        needed = missing(error.name, "recorder") if isinstance(error, ModuleNotFoundError) and error.name else None
        _log.warning("not recorded: %s", needed or error)


class _RecordedClient:
    """The class that becomes the first base of each client's class: it records each client that is made."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        _attach(self)


def _record_clients(session: Any) -> None:
    for service in OPERATIONS:
        session.register(f"creating-client-class.{service}", _add_base)


def _add_base(base_classes: list[type], **_: Any) -> None:
    base_classes.insert(0, _RecordedClient)


def start() -> None:
    """Record each client that this process, or a process that it forks, makes from now on, until the process ends.

    This includes clients of aiobotocore, whose sessions are botocore's. A session's initializer is
    `botocore.register_initializer` (its docstring in 1.44.5, read 2026-11-26); for `creating-client-class` see
    https://docs.aws.amazon.com/boto3/latest/guide/clientsadv.html#extending-boto3-clients (read 2026-11-26).
    """
    botocore.register_initializer(_record_clients)
