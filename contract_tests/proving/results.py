"""The plugin of `--results FILE`: what became of every promise, as JSON, whatever the target did.

Only a test that passed, and met no action that the target lacks, is a promise that holds; only a failed expectation is
a deviation. What a target does not offer is `not supported`; everything else, from a refused connection to a page of
HTML, is `unknown`. A failed expectation proves nothing either where an answer the test got was no answer: its calls are
watched.
"""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from contract_tests.promises import PROMISES
from contract_tests.targets import binding
from sluice import deviations
from sluice.deviations import Deviation
from sluice.error_codes import is_throttled
from sluice.errors import ConfigError, EndpointError
from sluice.localstack import health

_EVIDENCE_LENGTH_MAX = 300
_LACKS = ("InvalidAction", "UnknownOperationException", "UnknownOperation", "NotImplemented", "NotImplementedException")
_MOVE_TASKS = ("StartMessageMoveTask", "ListMessageMoveTasks", "CancelMessageMoveTask")
_VARYING = (
    (r"ct-[0-9a-f]{10}", "ct-…"),  # names of queues and topics, see conftest
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
    (r"(?<=127\.0\.0\.1:)\d+", "<port>"),
    (r"(?<=0x)[0-9a-f]{8,}", "…"),
    (r"[A-Za-z0-9+/_-]{48,}={0,2}", "<long>"),
    (r",? ?'ResponseMetadata': .*", "…"),
    (r"\w{3}, \d\d \w{3} \d{4} [\d:]+ GMT|\d{4}-\d\d-\d\dT[\d:.]+Z?", "<date>"),
    (r"\b(\d{13,}|1[78]\d{8})(\.\d+)?\b", "<number>"),  # times and sequence numbers; an account has 12 digits
    (r"\b\d+\.\d{3,}\b", "<number>"),
)


class PromiseStatus(StrEnum):
    """The result for a promise on a target."""

    DEVIATES = "deviates"
    UNKNOWN = "unknown"
    NOT_SUPPORTED = "not supported"
    HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class ContractFailure:
    """An answer that proves nothing about a promise; a crash may be how a target is known to deviate."""

    status: PromiseStatus
    text: str
    is_crash: bool = False


def first_line(text: str) -> str:
    """Return the first line that says something, without what differs from run to run."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    for pattern, instead in _VARYING:
        line = re.sub(pattern, instead, line)
    return line if len(line) <= _EVIDENCE_LENGTH_MAX else f"{line[: _EVIDENCE_LENGTH_MAX - 1]}…"


def describe_failure(operation: str, response: Any, parsed: Mapping[str, Any]) -> ContractFailure | None:
    """Return what is wrong with an answer, or None when a test may build on it.

    Args:
        operation: the API action.
        response: as botocore received it.
        parsed: what botocore made of it.
    """
    status, error = response.status_code, parsed.get("Error", {})
    code, text = str(error.get("Code", "")), bytes(response.content).lstrip()
    sentence = f"{operation} was answered with HTTP {status}"
    if status == 501 or code in _LACKS:
        return ContractFailure(
            PromiseStatus.NOT_SUPPORTED, first_line(f"{sentence}, {code}: {error.get('Message', '')}")
        )
    if status == 500 and operation in _MOVE_TASKS and response.headers.get("server", "").startswith("Werkzeug"):
        return ContractFailure(PromiseStatus.NOT_SUPPORTED, f"{sentence}, which is how moto answers actions it lacks")
    if is_throttled(str(status)) or is_throttled(code):
        return ContractFailure(PromiseStatus.UNKNOWN, first_line(f"{sentence}, {code}: throttled or unavailable"))
    if text and not text.startswith((b"{", b"<?xml", f"<{operation}Response".encode(), b"<ErrorResponse")):
        return ContractFailure(
            PromiseStatus.UNKNOWN, first_line(f"{sentence} and no answer of the protocol: {text[:60]!r}")
        )
    if status >= 500:
        return ContractFailure(
            PromiseStatus.UNKNOWN, first_line(f"{sentence}, {code}: {error.get('Message', '')}"), is_crash=True
        )
    return None


class ResultWatch:
    """Collects the answers to a test's calls that prove nothing about a promise, and the calls without an answer.

    It sees the calls of every client that the target of `on` makes. `failures` holds those since it was last cleared,
    which is done before each test.
    """

    def __init__(self) -> None:
        self.failures: list[ContractFailure] = []

    def on(self, target: binding.Target) -> binding.Target:
        """Return the target, changed so that this sees the answers to all clients it makes from now on."""

        def make_client(service: str) -> Any:
            client = target.make_client(service)
            client.meta.events.register_first("after-call", self._see_answer)
            client.meta.events.register_first("after-call-error", self._see_error)
            return client

        return dataclasses.replace(target, make_client=make_client)

    def _see_answer(self, http_response: Any, parsed: Mapping[str, Any], model: Any, **_: object) -> None:
        found = describe_failure(model.name, http_response, parsed)
        if found is not None:
            self.failures.append(found)

    def _see_error(self, exception: Exception, event_name: str, **_: object) -> None:
        operation = event_name.rpartition(".")[2]
        self.failures.append(
            ContractFailure(PromiseStatus.UNKNOWN, first_line(f"{operation} got no answer: {exception}"))
        )


def judge(
    error: BaseException | None, line: str, failures: list[ContractFailure], known: Deviation | None
) -> tuple[PromiseStatus, str]:
    """Return a test's result for its promise, and the reason.

    Args:
        error: what ended the test; None when nothing did.
        line: the file and line at which the test ended, or the name of a test that passed.
        failures: the answers to the test that prove nothing.
        known: why the target is known not to keep the promise.
    """
    if error is None:
        # Whoever expects a refusal also passes where the whole action is refused.
        lacking = next((failure for failure in failures if failure.status is PromiseStatus.NOT_SUPPORTED), None)
        return (
            (PromiseStatus.HOLDS, line) if lacking is None else (PromiseStatus.NOT_SUPPORTED, f"{line}: {lacking.text}")
        )
    is_expectation = isinstance(error, AssertionError) or (
        isinstance(error, pytest.fail.Exception) and not str(error).startswith("Timeout")
    )
    if is_expectation and known is not None and all(failure.is_crash for failure in failures):
        return PromiseStatus.DEVIATES, str(known)
    for status in (PromiseStatus.UNKNOWN, PromiseStatus.NOT_SUPPORTED):
        for met in failures:
            if met.status is status:
                return status, f"{line}: {met.text}"
    reason = first_line(str(error)) or type(error).__name__
    if is_expectation:
        return PromiseStatus.DEVIATES, f"{line}: {reason}"
    return PromiseStatus.UNKNOWN, f"{line}: {type(error).__name__}: {reason}"


def failing_line(item: pytest.Item, call: pytest.CallInfo[None]) -> str:
    """Return which line of the test ended it, or the test's own where its set-up did; `-` where nothing did."""
    if call.excinfo is None:
        return "-"
    own = [entry for entry in call.excinfo.traceback if Path(str(entry.path)) == item.path]
    return f"{item.path.name}:{own[-1].lineno + 1}" if own else "-"


def read_baseline(path: Path) -> dict[str, PromiseStatus]:
    """Return promise to its status in a file of `--results`.

    Raises:
        ConfigError: it is none.
    """
    try:
        promises = json.loads(path.read_text(encoding="utf-8"))["promises"]
        return {str(promise): PromiseStatus(result["status"]) for promise, result in promises.items()}
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}); write it with --results {path}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no file of --results ({error!r}); write it with --results {path}") from error


class Plugin:
    """Collects results in the process that controls the run, from whichever process ran the test.

    Args:
        path: file to write; None writes none.
        name: of the target, as in `sluice.deviations`.
        url: its endpoint.
        baseline: promise to the status it is to have, where it does not have to hold; None compares nothing.
    """

    def __init__(
        self, path: Path | None, *, name: str, url: str, baseline: Mapping[str, PromiseStatus] | None = None
    ) -> None:
        self.watch = ResultWatch()
        self._path, self._name, self._baseline = path, name, baseline
        self._url = url
        self._results: dict[str, dict[str, str | float]] = {}
        self._selected: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Forget the last test's findings."""
        self.watch.failures.clear()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record a test's result for its promise; a failure is reported in one line.

        A clean-up that fails takes nothing back: the test has seen what it came for.
        """
        report = yield
        if not is_contract(item):
            return report
        promise = promise_of(item)
        if call.when == "call" or (call.when == "setup" and call.excinfo is not None):
            line = failing_line(item, call)
            where = f"{item.path.name}::{item.name}" if line == "-" else line
            error = None if call.excinfo is None else call.excinfo.value
            known = deviations.of_promise(self._name, promise)
            status, evidence = judge(error, where, self.watch.failures, known)
            properties = [("promise", promise), ("status", str(status)), ("evidence", evidence)]
            report.user_properties += properties
            item.user_properties += properties  # JUnit XML takes them from the clean-up's report
            if report.failed:
                report.longrepr = f"{promise} {status}: {evidence}"
            if self._baseline is not None:
                _compare(report, promise, status, self._baseline.get(promise, PromiseStatus.HOLDS))
        elif report.failed:
            assert call.excinfo is not None
            report.longrepr = f"{promise}: the clean-up failed: {first_line(str(call.excinfo.value))}"
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report in."""
        properties = dict(report.user_properties)
        if report.when != "teardown" and "status" in properties:
            self._results[str(properties["promise"])] = {
                "status": str(properties["status"]),
                "seconds": round(report.duration, 3),
                "evidence": str(properties["evidence"]),
            }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Learn from a worker of xdist which promises were to be tested; one that crashed says nothing."""
        self._selected.update(getattr(node, "workeroutput", {}).get("promises", ()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file, in the controlling process."""
        here = {promise_of(item) for item in getattr(session, "items", ()) if is_contract(item)}
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["promises"] = sorted(here)
            return
        unseen = {
            "status": PromiseStatus.UNKNOWN,
            "seconds": 0.0,
            "evidence": "the run ended before the test of this promise did",
        }
        results = {
            promise: self._results.get(promise, unseen)
            for promise in PROMISES
            if promise in self._results or promise in here | self._selected
        }
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = {
            "target": self._name,
            "endpoint": self._url,
            "version": _version(self._name, self._url),
            "promises": results,
        }
        self._path.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print how many promises have which status."""
        count = Counter(result["status"] for result in self._results.values())
        totals = ", ".join(f"{count[status]} {status}" for status in reversed(PromiseStatus))
        written = "" if self._path is None else f"; written to {self._path}"
        terminalreporter.write_line(f"results: {totals}{written}")


def _compare(report: pytest.TestReport, promise: str, status: PromiseStatus, expected: PromiseStatus) -> None:
    """Let a test fail if its promise has another status than in the baseline, and only then."""
    if status is not expected:
        text = report.longrepr if report.failed else f"{promise} {status}"
        report.outcome, report.longrepr = "failed", f"{text}; expected was: {expected}"
    elif status is PromiseStatus.HOLDS:
        report.outcome, report.longrepr = "passed", None
    elif not report.passed:
        report.outcome, report.wasxfail = "skipped", f"as expected: {status}"


def is_contract(item: pytest.Item) -> bool:
    """Return whether a collected test is one of the suite; a user's own tests may run beside it."""
    return item.get_closest_marker("promise") is not None


def promise_of(item: pytest.Item) -> str:
    """Return the promise a collected test verifies."""
    marker = item.get_closest_marker("promise")
    assert marker is not None, "collection has refused tests without one"
    return str(marker.args[0])


def _version(name: str, url: str) -> str | None:
    """Return what the endpoint says of its version; None when it says nothing, or no longer."""
    if name not in ("localstack", "localemu"):
        return None
    with suppress(EndpointError):
        return str((health(url) or {}).get("version"))
    return None
