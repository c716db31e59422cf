"""A test decides about its promise only if its result rests on the service's answers."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from contract_tests.proving.results import (
    ContractFailure,
    PromiseStatus,
    describe_failure,
    first_line,
    judge,
    read_baseline,
)
from contract_tests.resources import NotArrangedError
from sluice.deviations import Deviation
from sluice.errors import ConfigError

KNOWN = Deviation("GAP-01", "it is known")
CRASH = ContractFailure(PromiseStatus.UNKNOWN, "HTTP 500", is_crash=True)
SILENCE = ContractFailure(PromiseStatus.UNKNOWN, "no answer")
LACKING = ContractFailure(PromiseStatus.NOT_SUPPORTED, "InvalidAction")


@pytest.mark.parametrize(
    ("error", "failures", "known", "status", "evidence"),
    [
        (None, [], None, PromiseStatus.HOLDS, "here"),
        (None, [], KNOWN, PromiseStatus.HOLDS, "here"),  # a deviation that is gone
        (
            None,
            [LACKING],
            None,
            PromiseStatus.NOT_SUPPORTED,
            "here: InvalidAction",
        ),  # a refusal that any call would get
        (AssertionError("1 == 2\nmore"), [], None, PromiseStatus.DEVIATES, "here: 1 == 2"),
        (AssertionError("1 == 2"), [], KNOWN, PromiseStatus.DEVIATES, "GAP-01: it is known"),
        (AssertionError("1 == 2"), [CRASH], KNOWN, PromiseStatus.DEVIATES, "GAP-01: it is known"),
        (AssertionError("1 == 2"), [SILENCE], KNOWN, PromiseStatus.UNKNOWN, "here: no answer"),
        (AssertionError("1 == 2"), [CRASH], None, PromiseStatus.UNKNOWN, "here: HTTP 500"),
        (AssertionError("1 == 2"), [LACKING], None, PromiseStatus.NOT_SUPPORTED, "here: InvalidAction"),
        (AssertionError("1 == 2"), [LACKING, SILENCE], None, PromiseStatus.UNKNOWN, "here: no answer"),
        (KeyError("Messages"), [], KNOWN, PromiseStatus.UNKNOWN, "here: KeyError: 'Messages'"),
        (KeyError("Messages"), [LACKING], None, PromiseStatus.NOT_SUPPORTED, "here: InvalidAction"),
        (NotArrangedError("waited 20 s"), [], KNOWN, PromiseStatus.UNKNOWN, "here: NotArrangedError: waited 20 s"),
        (OSError(), [], None, PromiseStatus.UNKNOWN, "here: OSError: OSError"),
    ],
)
def test_a_promise_deviates_only_if_the_failure_rests_on_answers(
    error: Exception | None,
    failures: list[ContractFailure],
    known: Deviation | None,
    status: PromiseStatus,
    evidence: str,
) -> None:
    assert judge(error, "here", failures, known) == (status, evidence)


def test_a_test_that_was_cut_off_proves_nothing() -> None:
    """pytest-timeout fails a test as an expectation would."""
    with pytest.raises(pytest.fail.Exception) as cut_off:
        pytest.fail("Timeout (>300.0s) from pytest-timeout.")

    assert judge(cut_off.value, "here", [], KNOWN)[0] is PromiseStatus.UNKNOWN


def test_a_test_that_was_skipped_proves_nothing() -> None:
    """No contract test skips; one that did would be no promise that holds, nor a lack of the target."""
    with pytest.raises(pytest.skip.Exception) as skipped:
        pytest.skip("no short window")

    assert judge(skipped.value, "here", [], KNOWN) == (PromiseStatus.UNKNOWN, "here: Skipped: no short window")


@pytest.mark.parametrize(
    ("operation", "status", "server", "content", "code", "found"),
    [
        ("SendMessage", 200, "", b"{}", "", None),
        ("SendMessage", 200, "", b"", "", None),
        ("Publish", 200, "", b"<PublishResponse>", "", None),
        ("Publish", 404, "", b"<ErrorResponse>", "NotFound", None),
        ("SendMessage", 400, "", b"{}", "InvalidParameterValue", None),
        ("SendMessage", 400, "", b"{}", "AWS.SimpleQueueService.UnsupportedOperation", None),  # AWS answers so, too
        ("SendMessage", 400, "", b"{}", "InvalidAction", "not supported"),
        ("SendMessage", 404, "", b"{}", "UnknownOperationException", "not supported"),
        ("SendMessage", 501, "", b"", "", "not supported"),
        ("StartMessageMoveTask", 500, "Werkzeug/3.1", b"<!doctype html>", "500", "not supported"),
        ("StartMessageMoveTask", 500, "TwistedWeb", b"{}", "InternalError", "unknown"),
        ("SendMessage", 500, "Werkzeug/3.1", b"<!doctype html>", "500", "unknown"),
        ("SendMessage", 500, "", b"{}", "InternalError", "unknown"),
        ("SendMessage", 503, "", b"{}", "ServiceUnavailable", "unknown"),
        ("SendMessage", 429, "", b"{}", "", "unknown"),
        ("SendMessage", 400, "", b"{}", "RequestThrottled", "unknown"),
        ("SendMessage", 200, "", b"<html>", "", "unknown"),
    ],
)
def test_a_broken_or_unsupported_answer_decides_nothing_about_a_promise(
    operation: str, status: int, server: str, content: bytes, code: str, found: str | None
) -> None:
    """None means that the answer counts as the service's own.

    The crash page of an emulator's server means "not supported" only of operations that emulators may lack.
    """
    response = SimpleNamespace(status_code=status, headers={"server": server}, content=content)
    met = describe_failure(operation, response, {"Error": {"Code": code, "Message": "…"}} if code else {})

    assert (met and str(met.status)) == found


def test_evidence_leaves_out_what_differs_from_run_to_run() -> None:
    found = "http://127.0.0.1:43121/123456789012/ct-0123456789-q-1 at 1795270000123\nand more"

    assert first_line(found) == "http://127.0.0.1:<port>/123456789012/ct-…-q-1 at <number>"
    assert len(first_line("ab " * 500)) == 300


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"promises": []}', '{"promises": {"A": {"status": "good"}}}', "\xff"]
)
def test_a_baseline_that_is_no_results_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(ConfigError, match="is no file of --results"):
        read_baseline(path)


def test_a_results_file_is_read_as_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"target": "x", "promises": {"GRP-01": {"status": "not supported"}}}), encoding="utf-8")

    assert read_baseline(path) == {"GRP-01": PromiseStatus.NOT_SUPPORTED}
    with pytest.raises(ConfigError, match=r"cannot read .*none.json \(No such file or directory\); write it with"):
        read_baseline(tmp_path / "none.json")
