"""Record every SNS and SQS client a program makes, without a change to the program: what `sluice record` starts.

Python imports a module called sitecustomize when it starts; `sluice record` puts one first on the path of its child
that calls `start` (https://docs.python.org/3/library/site.html, read 2026-11-22).
"""

import atexit
import functools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import botocore.session

from sluice.errors import ConfigError
from sluice.recorder.recording import record
from sluice.recorder.rows import OPERATIONS

FOLDER, GROUPS = "SLUICE_RECORD", "SLUICE_RECORD_ONE_GROUP_IN"
_log = logging.getLogger(__name__)
_CUSTOM = Path(__file__).resolve().parent / "startup"


def environment(folder: Path, one_group_in: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child whose clients are recorded.

    Args:
        folder: of the journals.
        one_group_in: of so many message groups one is kept.
        given: the environment it would have else.
    """
    library = Path(__file__).resolve().parents[2]
    path = [str(_CUSTOM), *filter(None, [given.get("PYTHONPATH")]), str(library)]
    return {**given, FOLDER: str(folder.resolve()), GROUPS: str(one_group_in), "PYTHONPATH": os.pathsep.join(path)}


def start() -> None:
    """Record each client that is made from now on in this process, and in those it forks, until it ends."""
    recording = record((), os.environ[FOLDER], one_group_in=int(os.environ[GROUPS]))
    make_client = botocore.session.Session.create_client

    @functools.wraps(make_client)
    def make_recorded(self: Any, service_name: str, *arguments: Any, **more: Any) -> Any:
        client = make_client(self, service_name, *arguments, **more)
        if service_name in OPERATIONS and recording.is_on:
            try:
                recording.attach(client)
            except ConfigError as error:  # a client that cannot be recorded works as before
                _log.warning("not recorded: %s", error)
        return client

    botocore.session.Session.create_client = make_recorded
    atexit.register(recording.close)
