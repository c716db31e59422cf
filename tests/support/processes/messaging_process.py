"""`sluice …` as separate processes, which can be stopped and killed."""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sluice.cli.main import main
from sluice.clock import eventually
from sluice.declaration import Environment, task_settings
from sluice.messaging.database import engines
from sluice.messaging.outbox import tables
from tests.support.processes.forking import forking

PATIENCE_SECONDS = 60

# The commands, and pandas, which pyarrow looks for when it makes its first array.
_forked = forking(__name__, "sluice.cli.services.relay", "sluice.cli.services.worker", "pandas")


class MessagingProcess:
    """`sluice …` as a process of its own; killed when the block ends.

    It is forked from a process that has imported everything, which takes seconds. Its standard error goes to `log`;
    `declared` is declared in it besides the other environments.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        declared: Environment | None = None,
    ) -> None:
        self._log = log
        log.touch()
        given = (list(arguments), dict(environment), str(log), declared)
        self._process = _forked.Process(target=_run, args=given, daemon=True)  # ends with the tests
        self._process.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def send(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait_for_exit(self) -> int:
        """Wait for its end and return its exit code; below zero the signal that ended it."""
        eventually(lambda: not self.is_running, timeout_seconds=PATIENCE_SECONDS, describe="the process to end")
        assert self._process.exitcode is not None
        return self._process.exitcode

    def stop(self) -> None:
        """Send the process SIGTERM, and check that it ends with 0."""
        self.send(signal.SIGTERM)
        assert self.wait_for_exit() == 0, self.log

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def log_entries(self, event: str) -> list[dict[str, Any]]:
        lines = [line for line in self.log.splitlines() if line.startswith("{")]
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    def await_logged(self, event: str) -> dict[str, Any]:
        def matching() -> list[dict[str, Any]]:
            assert self.is_running or self.log_entries(event), self.log
            return self.log_entries(event)

        return eventually(matching, timeout_seconds=PATIENCE_SECONDS, describe=f"the process to say {event!r}")[0]


def _run(arguments: list[str], environment: Mapping[str, str], log: str, declared: Environment | None) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for path, output in ((os.devnull, sys.stdout), (log, sys.stderr)):
        os.dup2(os.open(path, os.O_WRONLY), output.fileno())
    if declared is not None:
        os.environ[task_settings.VARIABLE] = task_settings.render(declared)
    sys.argv = ["sluice", *arguments]
    main()


def relay_process(tmp_path: Path, *options: str) -> MessagingProcess:
    """Start a relay that has nothing to publish."""
    dsn = f"sqlite:///{tmp_path / 'outbox.db'}"
    engine = engines.engine(dsn)
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
    engine.dispose()
    place = ("--dsn", dsn, "--topic-arn", "arn:aws:sns:us-east-1:000000000000:t.fifo")
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return MessagingProcess(
        ["relay", *place, "--endpoint-url", "http://127.0.0.1:9", *options],
        environment=keys,
        log=tmp_path / "relay.log",
    )
