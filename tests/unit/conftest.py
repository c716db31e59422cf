"""The unit tests run in one process: each worker of pytest-xdist would collect and import all of them for itself."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is imported and collected from being gone through for garbage, then and with every full collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def templates_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all templates."""
    from tests.support.templates.synthesis import synthesize_all  # noqa: PLC0415 (starts CDK, which few folders need)

    folder = tmp_path_factory.mktemp("templates")
    synthesize_all(folder)
    return folder
