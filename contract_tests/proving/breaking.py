"""Run contract tests again while something is broken, on the simulator, and count which promises notice it.

`--relevance` breaks what is between client and service; `--mutants` the rules of the model.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from contract_tests.resources import Resources
from contract_tests.targets import binding
from sluice.simulator import hook

_GRACE_SECONDS = 0.02


def shorten_grace(target: binding.Target) -> None:
    """Shorten the real time that a poll of the simulator waits for other threads: the suite runs a hundred times."""
    _simulator(target).grace_seconds = _GRACE_SECONDS


def forget(given: dict[str, Any]) -> None:
    """Empty the simulator, so that it follows the rules as they are now, and no run finds another's queues."""
    _simulator(given["resources"].target).reset()


def _simulator(target: binding.Target) -> hook.Simulator:
    simulator = hook.of(target.make_client("sqs"))
    assert simulator is not None, "such a run goes with --target simulator"
    return simulator


def status(test: Callable[..., None], given: dict[str, Any], breaking: AbstractContextManager[object]) -> str:
    """Return how a test fares while something is broken. Only a failed expectation is `red`: a crash proves nothing."""
    target, seen = given["resources"].target, "green"
    sqs, sns = target.make_client("sqs"), target.make_client("sns")
    resources = Resources(target, sqs, sns, prefix=f"ct-{uuid.uuid4().hex[:10]}")
    with breaking:
        forget(given)
        try:
            test(**given | {"resources": resources})
        except (AssertionError, pytest.fail.Exception):
            seen = "red"
        except Exception:
            seen = "crashed"
    forget(given)  # what a broken rule has left behind may not be deletable
    resources.close()
    return seen


def promises_by_name(terminalreporter: Any, kind: str, names: Iterable[str]) -> dict[str, dict[str, set[str]]]:
    """Return the promises in the reports' properties of a kind, by the name of what was broken and by status."""
    found: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in names}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if getattr(report, "when", "") == "call":
            (promise,) = [value for name, value in report.user_properties if name == "promise"]
            for name, value in report.user_properties:
                if name == kind:
                    broken, seen = value.split()
                    found[broken][seen].add(promise)
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every report name its promise."""
    for item in items:
        promise = item.get_closest_marker("promise")
        if promise is not None:
            item.user_properties.append(("promise", promise.args[0]))
