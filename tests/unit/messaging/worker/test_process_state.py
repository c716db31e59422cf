"""A handler's changes to its process are undone when no handler runs; changes by others stay."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from sluice.messaging.worker.processing.process_state import ProcessState

_NAME = "SLUICE_TEST_TENANT"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin without the variable, and keep the log quiet."""
    monkeypatch.delenv(_NAME, raising=False)
    with structlog.testing.capture_logs():
        yield


_CHANGES: dict[str, Callable[[], object]] = {
    "set": lambda: os.environ.update({_NAME: "b"}),
    "set as bytes": lambda: os.environb.update({_NAME.encode(): b"b"}),
    "removed": lambda: os.environ.pop(_NAME),
    "set and removed": lambda: (os.environ.update({_NAME: "b"}), os.environ.pop(_NAME)),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_an_environment_variable_that_a_handler_changes_is_restored(change: str) -> None:
    """To its value before this handler, which the program may have set since the last one."""
    state = ProcessState()
    with state.handling():
        pass
    os.environ[_NAME] = "a"

    for _ in range(2):
        with state.handling():
            _CHANGES[change]()

        assert os.environ[_NAME] == "a"


def test_a_variable_that_another_thread_is_about_to_set_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """`os.environ` changes after its audit event: https://docs.python.org/3/library/audit_events.html."""
    state, really_put = ProcessState(), os.putenv

    def put(*arguments: Any) -> None:
        really_put(*arguments)
        with state.handling():  # in another lane, at this moment
            pass

    with monkeypatch.context() as patched:
        patched.setattr(os, "putenv", put)
        os.environ[_NAME] = "a"
    with state.handling():
        os.environ[_NAME] = "b"

    assert os.environ[_NAME] == "a"


def test_the_file_mask_is_restored_after_a_handler_closed_proc_status(tmp_path: Path) -> None:
    """The mask is read from /proc/self/status, whose open file a handler may close."""
    state = ProcessState()
    before = os.umask(0o027)
    try:
        with state.handling():
            os.umask(0)
            for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (the test is not about paths)
                if os.path.realpath(f"/proc/self/fd/{name}").endswith("/status"):
                    os.close(int(name))

        (tmp_path / "made").touch()
        assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o640
    finally:
        os.umask(before)


def test_a_system_that_shows_no_file_mask_costs_no_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As gVisor, whose /proc/self/status has no such line."""
    (tmp_path / "status").write_text("Name:\tpython\n", encoding="ascii")
    opens = os.open

    def open_another(path: Any, *arguments: Any, **named: Any) -> int:
        return opens(tmp_path / "status" if path == "/proc/self/status" else path, *arguments, **named)

    monkeypatch.setattr(os, "open", open_another)
    state = ProcessState()
    with state.handling():  # a descriptor of the real one may be open by now
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (the test is not about paths)
            if os.path.realpath(f"/proc/self/fd/{name}").endswith("/status"):
                os.close(int(name))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    for _ in range(3):
        with state.handling():
            pass

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
