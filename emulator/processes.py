"""Start a command that cannot outlive this process, and stop it."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from emulator import supervisor
from sluice.clock import NotReachedError, eventually
from sluice.errors import EndpointError


class SupervisedProcess:
    """A command in a process group of its own, ended with this process at the latest.

    Args:
        command: program and arguments.
        environment: the whole environment of the command.
        grace_seconds: time between asking it to end and killing it.
        output: where its standard output and error go; None means to ours.
        folder: removed when the command has ended, however it ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        grace_seconds: float,
        output: IO[bytes] | None = None,
        folder: Path | None = None,
    ) -> None:
        read_end, self._pipe = os.pipe()
        self._grace_seconds = grace_seconds
        try:
            self._process = subprocess.Popen(
                [sys.executable, supervisor.__file__, str(read_end), str(grace_seconds), str(folder or ""), *command],
                env=dict(environment),
                pass_fds=[read_end],
                process_group=0,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
            )
        finally:
            os.close(read_end)

    @property
    def is_running(self) -> bool:
        """Return whether the command, or the clean-up after it, still runs."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait for the command's own end and return its exit code."""
        return self._process.wait()

    def stop(self, *, interrupt: bool = False) -> int:
        """End the command's whole process group, wait for that, and return its exit code. Safe to repeat."""
        if self._pipe >= 0:
            if interrupt and self.is_running:
                os.write(self._pipe, supervisor.INTERRUPT)
            os.close(self._pipe)
            self._pipe = -1
        return self._process.wait(timeout=self._grace_seconds + 10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(interrupt=isinstance(error, KeyboardInterrupt))


def await_ready(
    process: SupervisedProcess, answers: Callable[[], bool], *, name: str, timeout_seconds: float, log: Path
) -> None:
    """Wait until the server of a command answers.

    Raises:
        EndpointError: it ended while starting, or did not answer in that time; the message names its log.
    """

    def is_ready() -> bool:
        if not process.is_running:
            raise EndpointError(f"{name} ended while starting; its log: {log}")
        return answers()

    try:
        eventually(is_ready, timeout_seconds=timeout_seconds, describe=name, interval_seconds=0.2)
    except NotReachedError as error:
        raise EndpointError(f"{name} did not answer within {timeout_seconds} s; its log: {log}") from error
