"""A LocalStack that a module of tests has for itself."""

from collections.abc import Iterator

import pytest

from emulator import localstack


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[localstack.Emulator]:
    """Yield a LocalStack where nothing is deployed; AWS_* point at it."""
    with (
        localstack.running(log=tmp_path_factory.mktemp("empty") / "localstack.log") as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in running.environment().items():
            patch.setenv(name, value)
        yield running
