"""The plugin of `--relevance`: which promises every saboteur turns red on the simulator, beside those it is meant for.

A saboteur that turns everything red says little about any promise: the test that notices it may look at anything. A
test whose honest run never calls an operation that a saboteur listens to cannot notice it, so it is not run under it.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from contract_tests.promises import PROMISES
from contract_tests.proving import breaking
from sluice.saboteurs import SABOTEURS, Saboteur

pytest_collection_modifyitems = breaking.pytest_collection_modifyitems
_PROPERTY = "saboteur"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run a test once as it is, then once under every saboteur that it can meet; such a run never fails the test."""
    given: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    target = given["resources"].target
    clients = target.make_client("sqs"), target.make_client("sns")
    called: set[str] = set()
    with _noting(clients, called):
        breaking.forget(given)
        pyfuncitem.obj(**given)
    for name, saboteur in SABOTEURS.items():
        if _listens(saboteur, called):
            seen = breaking.status(pyfuncitem.obj, given, _saboteur_attached(clients, saboteur))
            pyfuncitem.user_properties.append((_PROPERTY, f"{name} {seen}"))
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


@contextmanager
def _saboteur_attached(clients: tuple[Any, Any], saboteur: Saboteur) -> Iterator[None]:
    made = saboteur.make(1)
    for client in clients:
        made.attach(client)
    yield
    for client in clients:
        made.detach(client)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print, for each promise and saboteur, how many other promises that saboteur turns red; the broadest first."""
    found = breaking.promises_by_name(terminalreporter, _PROPERTY, SABOTEURS)
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
