"""The plugin of `--mutants`: every promise against every rule mutant of the model it reaches, and who noticed which.

A promise whose honest run never calls a rule cannot notice that the rule is broken, so those pairs are left out. So are
the pairs of a mutant that enough promises of this process have noticed: what counts is who gets away.
"""

import dataclasses
import functools
import inspect
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from contract_tests.proving.mutants import MUTANTS, Mutant
from contract_tests.resources import Resources
from contract_tests.targets import binding
from sluice.simulator import hook

_PROPERTY = "mutants"
_GRACE_SECONDS = 0.02
_ENOUGH = 1  # promise of this process that notices a mutant
_caught: Counter[str] = Counter()
type SourceLocation = tuple[Any, str]
"""Owner and name of a rule."""


def sharing_clients(target: binding.Target) -> binding.Target:
    """Return the target with one client per service: a hundred times the suite makes too many of them."""
    return dataclasses.replace(target, make_client=functools.cache(target.make_client))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run a test once as it is, then once for every mutant it reaches; a mutant's run never fails the test."""
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    reached: set[SourceLocation] = set()
    with pytest.MonkeyPatch.context() as patch:
        for location in {_location(mutant) for mutant in MUTANTS.values()}:
            _note(patch, location, reached)
        forget(given)
        pyfuncitem.obj(**given)
    for mutant in MUTANTS.values():
        if _location(mutant) in reached and _caught[mutant.name] < _ENOUGH:
            seen = status(pyfuncitem.obj, given, _broken(mutant))
            _caught[mutant.name] += seen == "red"
            pyfuncitem.user_properties.append((_PROPERTY, f"{mutant.name} {seen}"))
    return True


def forget(given: dict[str, Any]) -> None:
    """Empty the simulator: what it is made of is then what the rules are now, and no run meets another's queues."""
    simulated = hook.of(given["resources"]._target.make_client("sqs"))
    assert simulated is not None, "such a run goes with --target simulator"
    simulated.reset()


def _location(mutant: Mutant) -> SourceLocation:
    """Return where the rule stands, which is a base class when the owner inherits it; for a number, who reads it."""
    owner, rule = mutant.read_by or (mutant.owner, mutant.rule)
    if not isinstance(owner, type):
        return owner, rule
    return next(base for base in owner.__mro__ if rule in vars(base)), rule


def _note(patch: pytest.MonkeyPatch, location: SourceLocation, reached: set[SourceLocation]) -> None:
    """Keep whether a rule is called."""
    rule = getattr(*location)

    def noting(*arguments: Any, **named: Any) -> Any:
        reached.add(location)
        return rule(*arguments, **named)

    is_static = isinstance(inspect.getattr_static(*location), staticmethod)
    patch.setattr(*location, staticmethod(noting) if is_static else noting)


def status(test: Callable[..., None], given: dict[str, Any], breaking: AbstractContextManager[object]) -> str:
    """Return how a test fares while something is broken. Only a failed expectation is `red`: a crash proves nothing."""
    target, seen = given["resources"]._target, "green"
    sqs, sns = target.make_client("sqs"), target.make_client("sns")
    resources = Resources(target, sqs, sns, prefix=f"ct-{uuid.uuid4().hex[:10]}")
    with pytest.MonkeyPatch.context() as patch, breaking:
        patch.setattr(hook, "_GRACE_SECONDS", _GRACE_SECONDS)
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


@contextmanager
def _broken(mutant: Mutant) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutant.owner, mutant.rule, mutant.instead)
        yield


def noticed(terminalreporter: Any, kind: str, names: Iterable[str]) -> dict[str, dict[str, set[str]]]:
    """Return, of what the reports have as a property of that kind, name -> how -> promises."""
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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print mutant by promise."""
    terminalreporter.section("mutant by promise")
    for name, seen in noticed(terminalreporter, _PROPERTY, MUTANTS).items():
        by = ", ".join(sorted(seen["red"])) or "NOBODY"
        crashed = f" (crashed: {', '.join(sorted(seen['crashed']))})" if seen["crashed"] else ""
        terminalreporter.write_line(f"{name:28} {MUTANTS[name].gap or '-':7} {by}{crashed}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when a mutant got away."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(session.config, "workerinput") or reporter is None:
        return
    if any(not seen["red"] for seen in noticed(reporter, _PROPERTY, MUTANTS).values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
