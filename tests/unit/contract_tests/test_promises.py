"""The table of promises against the tests, the saboteurs and the documentation."""

import re

from contract_tests.promises import CORE, PROMISES
from contract_tests.promises.untested import FACTS, NOT_TESTED
from sluice import deviations
from sluice.history.checker.anomalies import ANOMALIES
from sluice.saboteurs import SABOTEURS
from tests.support.project import PROJECT


def _marked() -> list[str]:
    return [
        id_
        for path in sorted((PROJECT / "contract_tests").rglob("test_*.py"))
        for id_ in re.findall(r'@pytest\.mark\.promise\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    ]


def test_every_promise_has_exactly_one_test() -> None:
    assert sorted(_marked()) == sorted(PROMISES)


def test_every_promise_has_evidence_and_a_known_saboteur() -> None:
    for promise in PROMISES.values():
        assert promise.evidence, promise.id
        assert promise.saboteurs, promise.id
        assert set(promise.saboteurs) <= set(SABOTEURS), promise.id


def test_the_core_is_a_page_of_known_promises() -> None:
    assert 35 <= len(CORE) <= 45
    assert len(set(CORE)) == len(CORE)
    assert set(CORE) <= set(PROMISES)


def test_every_saboteur_is_used() -> None:
    used = {name for promise in PROMISES.values() for name in promise.saboteurs}

    assert {name for name, saboteur in SABOTEURS.items() if name not in used and not saboteur.shows} == set()


def test_deviations_name_what_exists() -> None:
    """A deviation from a promise or anomaly that is not there would excuse nothing, silently."""
    assert {id_ for known in deviations.PROMISES.values() for id_ in known} <= set(PROMISES)
    assert {id_ for known in deviations.ANOMALIES.values() for id_ in known} <= set(ANOMALIES)
    assert {id_ for saboteur in SABOTEURS.values() for id_ in saboteur.shows} <= set(ANOMALIES)


def test_every_fact_is_a_promise_or_has_a_reason_why_not() -> None:
    """What was collected about AWS is not dropped silently; and a reason does not outlive its fact or its cause."""
    counts = set(FACTS)

    assert sorted(counts - set(PROMISES) - set(NOT_TESTED)) == []
    assert sorted(set(NOT_TESTED) - counts) == []
    assert sorted(set(NOT_TESTED) & set(PROMISES)) == []
    assert list(NOT_TESTED) == sorted(NOT_TESTED)
