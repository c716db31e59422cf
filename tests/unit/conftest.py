"""Each file of the unit run is one worker's, as each group is: what a file makes once is made once."""

import gc
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling


def pytest_collection_finish() -> None:
    """Keep what was imported and collected from being gone through with every full collection of garbage."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    """Take the place of `--dist loadgroup`, whose time also grows with the square of the number of groups."""
    if config.getvalue("dist") != "loadgroup":
        return None
    scheduler = LoadGroupScheduling(config, log)
    group_of = scheduler._split_scope
    scheduler._split_scope = lambda test: group_of(test).partition("::")[0]
    return scheduler
