"""`sluice …` in this process, as a shell would see it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import boto3
import pytest
import structlog

from sluice.cli.main import main

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
_VARIABLES = ("SLUICE_ENV", "SLUICE_CONSUMER", "SLUICE_DSN", "SLUICE_DATABASE_SECRET_ARN", "AWS_ENDPOINT_URL")

type Run = Callable[..., tuple[int, str, str]]


@contextmanager
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Yield a function that runs a command line and returns its exit code, standard output and standard error."""
    log = structlog.get_config()
    # the default session would keep the credentials of an earlier test
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    monkeypatch.setattr("sluice.messaging.waiting.Stop.on_signals", lambda _: None)
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = 0
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    yield run
    structlog.configure(**log)
