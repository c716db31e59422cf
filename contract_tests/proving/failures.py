"""Report a failure in one line with its promise and its reason, as an expected failure is reported."""

from collections.abc import Iterable
from typing import Any

import pytest
from botocore.exceptions import ConnectionError as NotConnected
from botocore.exceptions import HTTPClientError
from botocore.parsers import ResponseParserError

from contract_tests.proving.results import failing_line, first_line, promise_of

_NO_ANSWERS = (NotConnected, HTTPClientError, ResponseParserError)


def tell(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Name the promise in a failure; the traceback of a clean-up, or of a client that got no answer, is left out."""
    error = None if call.excinfo is None else call.excinfo.value
    promise = promise_of(item)
    if not report.failed or error is None or isinstance(report.longrepr, str):
        return
    if report.when == "teardown":
        report.longrepr = f"{promise}: the clean-up failed: {_sentence(error)}"
    elif isinstance(error, _NO_ANSWERS):
        report.longrepr = f"{promise}: {failing_line(item, call)}: no answer: {_sentence(error)}"
    elif (crash := getattr(report.longrepr, "reprcrash", None)) is not None:
        crash.message = f"{promise}: {crash.message}"


def _sentence(error: BaseException) -> str:
    return first_line(str(error)) or type(error).__name__


def summarise(terminalreporter: Any) -> None:
    """Print a line for each failure, whole; pytest's own are cut to the width of the terminal."""
    failed = [(kind, report) for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
    if not failed:
        return
    terminalreporter.section("what failed")
    for kind, report in failed:
        word = "ERROR" if kind == "error" else "FAILED"
        terminalreporter.write_line(f"{word} {report.nodeid} - {_reason(report.longrepr)}")
    terminalreporter.reportchars = "".join(_without(terminalreporter.reportchars, "fE"))


def _reason(longrepr: Any) -> str:
    crash = getattr(longrepr, "reprcrash", None)
    return first_line(str(longrepr) if crash is None else crash.message)


def _without(characters: Iterable[str], left_out: str) -> Iterable[str]:
    return (character for character in characters if character not in left_out)
