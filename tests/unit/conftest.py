"""Each file of the unit tests runs on one xdist worker, as each group does, so shared things are made once."""

import gc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is imported and collected from being gone through for garbage, then and with every full collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    """Take the place of `--dist loadgroup`, whose time also grows with the square of the number of groups."""
    if config.getvalue("dist") != "loadgroup":
        return None
    scheduler = LoadGroupScheduling(config, log)
    group_of = scheduler._split_scope
    scheduler._split_scope = lambda test: group_of(test).partition("::")[0]
    return scheduler


@pytest.fixture(scope="session")
def templates_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all templates; tests that use it are in the group `cdk`."""
    from tests.support.templates.synthesis import synthesize_all  # noqa: PLC0415 (starts CDK, which few folders need)

    folder = tmp_path_factory.mktemp("templates")
    synthesize_all(folder)
    return folder
