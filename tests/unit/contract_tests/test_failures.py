"""A failed contract test is reported in one line, with its promise and its reason."""

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from contract_tests.proving import failures

ITEM: Any = SimpleNamespace(
    path="contract_tests/queues/test_batches.py", get_closest_marker=lambda _: SimpleNamespace(args=("BAT-09",))
)
EXPECTATION = AssertionError("assert ['m2', 'm1'] == ['m1', 'm2']\n  and so on")
SILENCE = EndpointConnectionError(endpoint_url="http://127.0.0.1:4566/")


def _printed_line(when: str, error: BaseException) -> str:
    """Return the line printed of a test that ended so."""
    crash = SimpleNamespace(message=str(error))
    report: Any = SimpleNamespace(
        when=when, failed=True, longrepr=SimpleNamespace(reprcrash=crash), nodeid="test_batches.py::test_it"
    )
    call: Any = SimpleNamespace(excinfo=SimpleNamespace(value=error, traceback=[]))
    lines: list[str] = []
    terminal = SimpleNamespace(
        stats={"failed": [report]}, section=lines.append, write_line=lines.append, reportchars="fExX"
    )

    failures.tell(ITEM, call, report)
    failures.summarise(terminal)

    assert terminal.reportchars == "xX", "pytest would print the line again, cut"
    return lines[-1]


@pytest.mark.parametrize(
    ("when", "error", "reason"),
    [
        ("call", EXPECTATION, "BAT-09: assert ['m2', 'm1'] == ['m1', 'm2']"),
        ("call", SILENCE, 'BAT-09: -: no answer: Could not connect to the endpoint URL: "http://127.0.0.1:<port>/"'),
        ("teardown", KeyError("QueueUrl"), "BAT-09: the clean-up failed: 'QueueUrl'"),
    ],
)
def test_a_failure_is_printed_in_one_line_with_promise_and_reason(when: str, error: Exception, reason: str) -> None:
    assert _printed_line(when, error) == f"FAILED test_batches.py::test_it - {reason}"
