"""The plugin of `--mutants`: every promise against every rule mutant of the model it reaches, and who noticed which.

A promise whose honest run never calls a rule cannot notice that the rule is broken, so those pairs are left out. So are
the pairs of a mutant that enough promises of this process have noticed: what counts is who gets away.
"""

import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from contract_tests.proving import breaking
from tests.mutants import MUTANTS, Mutant, pairs

pytest_collection_modifyitems = breaking.pytest_collection_modifyitems
_PROPERTY = "mutants"
_ENOUGH = 1  # promise of this process that notices a mutant
_caught: Counter[str] = Counter()
type SourceLocation = tuple[Any, str]
"""Owner and name of a rule."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run a test once as it is, then once for every mutant it reaches; a mutant's run never fails the test."""
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    reached: set[Any] = set()
    with pairs.noting(reached), pytest.MonkeyPatch.context() as patch:
        for location in {_location(mutant) for mutant in MUTANTS.values() if mutant.pair is None}:
            _note(patch, location, reached)
        breaking.forget(given)
        pyfuncitem.obj(**given)
    for mutant in MUTANTS.values():
        if (mutant.pair or _location(mutant)) in reached and _caught[mutant.name] < _ENOUGH:
            seen = breaking.status(pyfuncitem.obj, given, _breaking(mutant))
            _caught[mutant.name] += seen == "red"
            pyfuncitem.user_properties.append((_PROPERTY, f"{mutant.name} {seen}"))
    return True


def _location(mutant: Mutant) -> SourceLocation:
    """Return where the rule stands, which is a base class when the owner inherits it; for a number, who reads it."""
    owner, rule = mutant.read_by or (mutant.owner, mutant.rule)
    if not isinstance(owner, type):
        return owner, rule
    return next(base for base in owner.__mro__ if rule in vars(base)), rule


def _note(patch: pytest.MonkeyPatch, location: SourceLocation, reached: set[Any]) -> None:
    """Keep whether a rule is called."""
    rule = getattr(*location)

    def noting(*arguments: Any, **named: Any) -> Any:
        reached.add(location)
        return rule(*arguments, **named)

    is_static = isinstance(inspect.getattr_static(*location), staticmethod)
    patch.setattr(*location, staticmethod(noting) if is_static else noting)


@contextmanager
def _breaking(mutant: Mutant) -> Iterator[None]:
    if mutant.pair is not None:
        with pairs.breaking(mutant):
            yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutant.owner, mutant.rule, mutant.instead)
        yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print mutant by promise."""
    terminalreporter.section("mutant by promise")
    for name, seen in breaking.promises_by_name(terminalreporter, _PROPERTY, MUTANTS).items():
        by = ", ".join(sorted(seen["red"])) or "NOBODY"
        crashed = f" (crashed: {', '.join(sorted(seen['crashed']))})" if seen["crashed"] else ""
        terminalreporter.write_line(f"{name:28} {MUTANTS[name].gap or '-':7} {by}{crashed}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when a mutant got away."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(session.config, "workerinput") or reporter is None:
        return
    if any(not seen["red"] for seen in breaking.promises_by_name(reporter, _PROPERTY, MUTANTS).values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
