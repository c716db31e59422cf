"""All tests, and all processes they start, run on the frozen declaration; tests of one xdist group on one worker.

Ctrl-C works in all processes they start: a run in a shell's background ignores it, and so would whatever it starts.
The sessions of boto3, of which many tests make their own, read botocore's models once for all.
"""

import functools
import os
import signal
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from sluice.declaration import loading

os.environ[loading.VARIABLE] = str(Path(__file__).parent / "support" / "declarations" / "environments.py")
signal.signal(signal.SIGINT, signal.default_int_handler)
botocore.session.create_loader = functools.cache(botocore.session.create_loader)


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Put a test's group behind its id, where `--dist loadgroup` looks: xdist 3.8 fails to with pytest 9.2."""
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and "@" not in item.nodeid.rpartition("]")[2]:
            item._id = type(item._id).parse(f"{item.nodeid}@{group.args[0]}")
