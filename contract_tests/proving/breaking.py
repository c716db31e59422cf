"""Run contract tests on the simulator while something is broken, and collect the promises whose tests notice it.

`--relevance` breaks calls between client and service; `--mutants` breaks rules of the simulator's model.
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
    """Reset the simulator of a test: it applies the rules as they are now, and has no queues of an earlier run.

    `given` are the test's fixtures.
    """
    _simulator(given["resources"].target).reset()


def _simulator(target: binding.Target) -> hook.Simulator:
    """Return the simulator behind a target's clients."""
    simulator = hook.simulator_of(target.make_client("sqs"))
    assert simulator is not None, "such a run goes with --target simulator"
    return simulator


def status(test: Callable[..., None], given: dict[str, Any], breaking: AbstractContextManager[object]) -> str:
    """Run a test while something is broken; return `green` if it passes, `red` if an assertion fails, else `crashed`.

    Args:
        test: the test's function.
        given: its fixtures.
        breaking: breaks something inside of the `with`.
    """
    target, seen = given["resources"].target, "green"
    sqs, sns = target.make_client("sqs"), target.make_client("sns")
    functions = target.make_client("lambda") if given["resources"].plays_functions else None
    resources = Resources(target, sqs, sns, prefix=f"ct-{uuid.uuid4().hex[:10]}", functions=functions)
    with breaking:
        forget(given)
        try:
            test(**given | {"resources": resources})
        except (AssertionError, pytest.fail.Exception):
            seen = "red"
        except Exception:
            seen = "crashed"
    forget(given)  # queues that were made under a broken rule may be impossible to delete
    resources.close()
    return seen


def promises_by_name(terminalreporter: Any, kind: str, names: Iterable[str]) -> dict[str, dict[str, set[str]]]:
    """Return the promises whose tests ran while something was broken, by its name and by the test's status.

    Args:
        terminalreporter: pytest's, with all reports.
        kind: the reports' property that has name and status, such as `mutant`.
        names: all things that were broken.
    """
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
    """Add each test's promise to its report."""
    for item in items:
        promise = item.get_closest_marker("promise")
        if promise is not None:
            item.user_properties.append(("promise", promise.args[0]))
