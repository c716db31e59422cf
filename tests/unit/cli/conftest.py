"""The command line, run in this process."""

from collections.abc import Iterator

import pytest

from tests.support.command_line import Run, command_line


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Yield a function that runs `sluice` in this process, and returns exit code, output and error output."""
    with command_line(monkeypatch, capsys) as made:
        yield made
