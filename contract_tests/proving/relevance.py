"""The plugin of `--relevance`: which promises every saboteur turns red on the simulator, beside those it is meant for.

A saboteur that turns everything red says little about any promise: the test that notices it may look at anything. A
test whose honest run never calls an operation that a saboteur listens to cannot notice it, so it is not run under it.
"""

import inspect
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from contract_tests.promises import PROMISES
from contract_tests.proving import mutation
from contract_tests.resources import Resources
from sluice.saboteurs import SABOTEURS, Saboteur
from sluice.simulator import hook

_PROPERTY = "saboteur"
_GRACE_SECONDS = 0.02


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run a test once as it is, then once under every saboteur that it can meet; such a run never fails the test."""
    given: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    target = given["resources"]._target
    clients = target.make_client("sqs"), target.make_client("sns")
    called: set[str] = set()
    with _noting(clients, called):
        mutation.forget(given)
        pyfuncitem.obj(**given)
    for saboteur in SABOTEURS.values():
        if _listens(saboteur, called):
            seen = _status(pyfuncitem.obj, given, clients, saboteur)
            pyfuncitem.user_properties.append((_PROPERTY, f"{saboteur.name} {seen}"))
    return True


@contextmanager
def _noting(clients: tuple[Any, Any], called: set[str]) -> Iterator[None]:
    """Keep which operations are called meanwhile."""

    def note(model: Any, **_: Any) -> None:
        called.add(f"{model.service_model.service_name}.{model.name}")

    for client in clients:
        client.meta.events.register("before-call", note)
    yield
    for client in clients:
        client.meta.events.unregister("before-call", note)


def _listens(saboteur: Saboteur, called: set[str]) -> bool:
    return any(
        operation == heard or operation.startswith(f"{heard}.")
        for heard in saboteur.make(1).operations
        for operation in called
    )


def _status(test: Callable[..., None], given: dict[str, Any], clients: tuple[Any, Any], saboteur: Saboteur) -> str:
    """Return how a test fares under a saboteur. Only a failed expectation counts: a crash proves nothing."""
    made, seen = saboteur.make(1), "green"
    mutation.forget(given)
    resources = Resources(given["resources"]._target, *clients, prefix=f"ct-{uuid.uuid4().hex[:10]}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hook, "_GRACE_SECONDS", _GRACE_SECONDS)
        for client in clients:
            made.attach(client)
        try:
            test(**given | {"resources": resources})
        except (AssertionError, pytest.fail.Exception):
            seen = "red"
        except Exception:
            seen = "crashed"
        for client in clients:
            made.detach(client)
    mutation.forget(given)
    resources.close()
    return seen


def _found(terminalreporter: Any) -> dict[str, dict[str, set[str]]]:
    """Return saboteur -> how -> promises."""
    found: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in SABOTEURS}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if getattr(report, "when", "") == "call":
            (promise,) = [value for name, value in report.user_properties if name == "promise"]
            for name, value in report.user_properties:
                if name == _PROPERTY:
                    saboteur, seen = value.split()
                    found[saboteur][seen].add(promise)
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every report name its promise."""
    mutation.pytest_collection_modifyitems(items)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print, for each promise and saboteur, how many other promises that saboteur turns red; the broadest first."""
    found = _found(terminalreporter)
    tested = {promise for seen in found.values() for promises in seen.values() for promise in promises}
    rows = [
        (len(found[saboteur]["red"] - {promise}), promise, saboteur)
        for promise in PROMISES
        if promise in tested
        for saboteur in PROMISES[promise].saboteurs
    ]
    narrowest = {promise: min(others for others, id_, _ in rows if id_ == promise) for _, promise, _ in rows}
    terminalreporter.section("how many others a promise's saboteur turns red")
    for others, promise, saboteur in sorted(rows, key=lambda row: (-narrowest[row[1]], row[1], row[0])):
        terminalreporter.write_line(f"{promise:8} {saboteur:26} {others}")
    terminalreporter.section("what a saboteur turns red")
    for name, seen in sorted(found.items(), key=lambda row: -len(row[1]["red"])):
        meant = sum(name in PROMISES[promise].saboteurs for promise in seen["red"])
        terminalreporter.write_line(f"{name:26} red {len(seen['red'])}, meant {meant}, crashed {len(seen['crashed'])}")
    middle = sorted(narrowest.values())[len(narrowest) // 2] if narrowest else 0
    terminalreporter.write_line(
        f"{len(narrowest)} promises; others that the narrowest saboteur turns red: {middle} in the middle,"
        f" {max(narrowest.values(), default=0)} at most"
    )
