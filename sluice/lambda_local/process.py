"""One execution environment of a function: a process of `awslambdaric`, started, frozen and killed as in Lambda.

- The process is started with the first event. If the start fails, the invocation fails.
- Between two invocations it is stopped (SIGSTOP): no thread of it runs, and its connections are not used.
- It is killed when an invocation takes longer than the timeout, or when it has more memory than is declared. The next
  event starts another process.

https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html (read 2026-11-27)
"""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from sluice.clock import SystemClock
from sluice.errors import ConfigError
from sluice.lambda_local.runtime_api import FunctionAnswer, RuntimeApi
from sluice.simulator.model.mapping import NoAnswer
from sluice.terminal.logger import Logger

_log = Logger()
START_SECONDS = 10.0
"""The longest time that Lambda gives a process to start."""
_LOOK_SECONDS = 0.02


class FunctionProcess:
    """An execution environment; one thread uses it.

    Args:
        entry_point: the handler, `module.function`.
        variables: the environment variables of the process; the Runtime API's address is added.
        timeout_seconds: the longest time of an invocation.
        memory_mb: the most memory of the process.
        freezes: whether the process is stopped between two invocations.
        start_seconds: the longest time of a start.

    Attributes:
        starts: the number of processes that were started.
    """

    def __init__(
        self,
        entry_point: str,
        variables: Mapping[str, str],
        *,
        timeout_seconds: float,
        memory_mb: int,
        freezes: bool = True,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._entry_point, self._variables = entry_point, dict(variables)
        self._timeout_seconds, self._memory_mb, self._freezes = timeout_seconds, memory_mb, freezes
        self._start_seconds = start_seconds
        self._clock = SystemClock()
        self._api: RuntimeApi | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._cleanup = ExitStack()
        self.starts = 0

    @property
    def process_id(self) -> int | None:
        """Return the id of the present process; None if none was started, or it was ended."""
        return None if self._process is None else self._process.pid

    def invoke(self, event: Mapping[str, Any], *, is_stopped: Callable[[], bool] = lambda: False) -> object:
        """Return the function's return value, parsed from JSON; `NoAnswer.ERROR` if it raised, died or took too long.

        Args:
            event: the event that the function is called with.
            is_stopped: returns whether to give up and end the process.
        """
        api = self._start()
        if not self._await_start(api):
            return self._end("the process did not start")
        assert self._process is not None, "it was started"
        self._process.send_signal(signal.SIGCONT)
        request_id = str(uuid.uuid4())
        ends_at = self._clock.monotonic() + self._timeout_seconds
        deadline_ms = self._clock.now_us() // 1_000 + round(self._timeout_seconds * 1_000)
        api.give(request_id, event, deadline_ms=deadline_ms, function_arn=self._variables.get("_FUNCTION_ARN", "local"))
        while (reason := self._reason_to_end(ends_at, is_stopped)) is None:
            answer = api.take(_LOOK_SECONDS)
            if answer is not None and answer.request_id == request_id:
                self._freeze()
                return self._read(answer)
        return self._end(reason)

    def _reason_to_end(self, ends_at: float, is_stopped: Callable[[], bool]) -> str | None:
        """Return why there will be no answer; None while there may be one."""
        assert self._process is not None, "it was started"
        if is_stopped():
            return "the function is stopped"
        if self._process.poll() is not None:
            return f"the process ended with {self._process.returncode}"
        if self._clock.monotonic() >= ends_at:
            return f"the function took longer than {self._timeout_seconds:g} s"
        if (used_mb := self._used_mb()) > self._memory_mb:
            return f"the process has {used_mb} MB of memory, allowed are {self._memory_mb}"
        return None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = self._api = None
        self._cleanup.close()

    def _start(self) -> RuntimeApi:
        """Start a process unless one is there, and return the Runtime API that the process asks for events."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._api is not None:
            return self._api
        self._api = api = self._cleanup.enter_context(RuntimeApi())
        variables = {**self._variables, "AWS_LAMBDA_RUNTIME_API": api.address, "_HANDLER": self._entry_point}
        command = [sys.executable, "-m", "awslambdaric", self._entry_point]
        # A group of its own in this session: when this process ends in any way, the system ends a stopped group.
        self._process = subprocess.Popen(command, env=variables, process_group=0)
        self.starts += 1
        _log.info("cold start", process=self._process.pid)
        return api

    def _await_start(self, api: RuntimeApi) -> bool:
        """Wait until the process has asked for its first event; return False if it fails or takes too long."""
        ends_at = self._clock.monotonic() + self._start_seconds + self._timeout_seconds
        while not api.is_ready and self._clock.monotonic() < ends_at:
            failed = api.take(_LOOK_SECONDS)
            if failed is not None:
                _log.error("the function did not start", error=failed.error)
                return False
            if self._process is None or self._process.poll() is not None:
                return False
        return api.is_ready

    def _freeze(self) -> None:
        """Stop the process, and wait until it is stopped.

        If this process ended before, the system would not end the function's group (see `_start`).
        """
        if self._freezes and self._process is not None:
            os.killpg(self._process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _read(self, answer: FunctionAnswer) -> object:
        """Return the function's return value; `NoAnswer.ERROR` if it raised or returned no JSON."""
        if answer.body is None:
            _log.error("the function raised", error=answer.error)
            return NoAnswer.ERROR
        try:
            return json.loads(answer.body)
        except ValueError:
            _log.error("the answer is no JSON", answer=answer.body.decode(errors="replace"))
            return NoAnswer.ERROR

    def _end(self, reason: str) -> NoAnswer:
        """Log the reason, end the process, and return `NoAnswer.ERROR`."""
        _log.error("the invocation failed", reason=reason)
        self.close()
        return NoAnswer.ERROR

    def _used_mb(self) -> int:
        """Return the memory of the process in MB; 0 if the system does not tell."""
        if self._process is None:
            return 0
        with suppress(OSError):
            for line in Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) // 1_024
        return 0


def require_runtime() -> None:
    """Refuse to begin without `awslambdaric`.

    Raises:
        ConfigError: it is not installed.
    """
    import importlib.util  # noqa: PLC0415

    if importlib.util.find_spec("awslambdaric") is None:
        raise ConfigError("there is no module awslambdaric; pip install 'sluice-fifo[lambda]'")
