"""Broken variants of the app: a test that never fails proves nothing, so each is caught by one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, override

import pytest
from django.db import connections, transaction

from sluice.django import databases, handlers, outbox
from tests.integration.django import test_handlers, test_outbox

type Break = Callable[[pytest.MonkeyPatch], None]


def _adds_without_a_transaction(patch: pytest.MonkeyPatch) -> None:
    class Careless(outbox._Executor):
        """An executor whose database claims that it never commits by itself."""

    found = databases.database

    class DjangoDatabase:
        def __init__(self, alias: str) -> None:
            self._found = found(alias)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._found, name)

        def get_autocommit(self) -> bool:
            return False

    patch.setattr(outbox, "database", DjangoDatabase)
    patch.setattr(outbox, "_Executor", Careless)
    patch.setattr("sluice.messaging.outbox.sessions.require_transaction", lambda _: None)


def _adds_over_a_connection_of_its_own(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def apart(alias: str) -> Iterator[None]:
        own, connections[alias] = connections[alias], connections.create_connection(alias)
        with transaction.atomic(using=alias):
            yield
        connections[alias].close()
        connections[alias] = own

    class ExecutorApart(outbox._Executor):
        def __init__(self, found: Any) -> None:
            super().__init__(found)
            self._alias = found.alias

        @override
        def execute(self, *arguments: Any) -> Any:
            with apart(self._alias):
                self._found = connections[self._alias]
                return super().execute(*arguments)

    patch.setattr(outbox, "_Executor", ExecutorApart)


def _handles_on_djangos_connection(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def own(alias: str, _: object) -> Iterator[Any]:
        with transaction.atomic(using=alias):
            yield connections[alias]

    patch.setattr(handlers, "_loan", own)


def _commits_what_is_to_be_rolled_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handlers, "_call", lambda _, call: call())


def _calls_on_commit_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    plain = handlers._call

    def call(found: Any, handle: Any) -> Any:
        outcome = plain(found, handle)
        while found.run_on_commit:
            found.run_on_commit.pop()[1]()
        return outcome

    patch.setattr(handlers, "_call", call)


def _forgets_on_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handlers, "_call_on_commit", lambda _: None)


def _misbehaves(alias: str) -> None:
    test_handlers._misbehave(alias, "has it rolled back", "Ack")


VARIANTS: dict[str, tuple[Break, Callable[[str], None]]] = {
    "adds without a transaction": (
        _adds_without_a_transaction,
        test_outbox.test_an_event_outside_of_atomic_is_refused,
    ),
    "adds over a connection of its own": (
        _adds_over_a_connection_of_its_own,
        test_outbox.test_a_rolled_back_savepoint_takes_its_event_and_its_number,
    ),
    "handles on Django's connection": (
        _handles_on_djangos_connection,
        test_handlers.test_an_effect_of_the_orm_happens_once_however_often_messages_come,
    ),
    "commits a handler that is to be rolled back": (_commits_what_is_to_be_rolled_back, _misbehaves),
    "calls on_commit before the commit": (
        _calls_on_commit_before_the_commit,
        test_handlers.test_on_commit_is_called_after_the_worker_has_committed_and_never_without,
    ),
    "forgets on_commit": (
        _forgets_on_commit,
        test_handlers.test_on_commit_is_called_after_the_worker_has_committed_and_never_without,
    ),
}


_QUICK = ("adds without a transaction", "handles on Django's connection")


@pytest.mark.parametrize(
    "variant", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
)
def test_a_broken_variant_is_caught(postgres: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, check = VARIANTS[variant]
    break_it(monkeypatch)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(postgres)
