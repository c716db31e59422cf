"""The table of promises against the tests, the saboteurs and the documentation."""

import json
import re
from dataclasses import replace

import pytest

from contract_tests.promises import CORE, PROMISES, Evidence, Grade, Promise
from contract_tests.promises.promise import LOCALSTACK_TESTS
from sluice import deviations
from sluice.judge.checker.anomalies import ANOMALIES
from sluice.saboteurs import SABOTEURS
from tests.support.project import PROJECT
from tools.cited_tests import CITED, untested_evidence
from tools.cited_tests import evidence as every_evidence

_CITED = json.loads(CITED.read_text(encoding="utf-8"))["tests"]
_SEEN = (Grade.RECORDED, Grade.ASSERTED, Grade.OLD, Grade.REPORTED)
_CODES = re.compile(r"invalid_parameter|_INVALID|\(\"[A-Z][A-Za-z.]+\", 4\d\d\)")
_DOCUMENTED_CODES = {
    "SNS-114": "the API reference of PublishBatch names EmptyBatchRequest for a batch without an entry",
    "SNS-99": "the API reference of Publish names InvalidParameter for a message that is too long",
}


# What was collected about AWS, by area.
_NUMBERS = {
    "BAT": "01 02 03 04 05 06 07 08 09 11 12 13",
    "CRE": "01 02 04 05 06 07 09 10 11 12 13 14 16 17 18 19 20 21 22 23 24 25 26 27 28 43 44 45",
    "DED": "01 04 05 06 07 08 09 10 11 12 13 14 15 16 28",
    "DLQ": "01 04 05 06 07 08 09 10 11 12 13 14 15 17 18 19 20 21 22 23 24 25 40",
    "ERR": "02 03 04 05 06",
    "ESM": "01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33",
    "GRP": "01 02 03 04 05 07 08 09 10 11 12 13 15 17 18",
    "LIM": "01 02 03 04 05 06 07 08 09 11 22",
    "MET": "01 02 03 04 05 06 07",
    "MOV": "01 02 04 06 07 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 50 51",
    "ORD": "01 02 04 05 07 08",
    "PUR": "01 02 04 05 17",
    "RCV": "02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17",
    "SND": "01 02 03 04 05 06 09 10 11 12 14 15 16 17 18 20 21 37 38",
    "SNS": "01 04 05 06 07 08 09 10 11 12 14 16 17 18 19 20 24 25 26 27 28 29 30 31 32 34 35 36 37 38 39 40 42 43 44"
    " 133 134 135 136 137 138 139 140 141",
    "TAG": "01 03 04 06 18",
    "VIS": "01 02 04 05 06 07 08 09 10 11 12 13 14 15 16 17 31",
}


def _marked_promises() -> list[str]:
    return [
        id_
        for path in sorted((PROJECT / "contract_tests").rglob("test_*.py"))
        for id_ in re.findall(r'@pytest\.mark\.promise\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    ]


def test_every_promise_has_exactly_one_test() -> None:
    assert sorted(_marked_promises()) == sorted(PROMISES)


def _tests() -> dict[str, str]:
    """Return the source of every test, by promise."""
    parts = [
        part
        for path in sorted((PROJECT / "contract_tests").rglob("test_*.py"))
        for part in path.read_text(encoding="utf-8").split("\n\n\n")
    ]
    return {found[1]: part for part in parts if (found := re.search(r'@pytest\.mark\.promise\("([^"]+)"\)', part))}


def _grade_problem(evidence: Evidence) -> str | None:
    """Return the contradiction of LocalStack's own files to a grade or a date; None if there is none."""
    runs = _CITED.get(evidence.source.removeprefix(LOCALSTACK_TESTS))
    if runs is None:
        return "is not among the cited tests: python -m tools.cited_tests CLONE"
    allowed = {
        Grade.RECORDED: runs["recorded"],
        Grade.ASSERTED: [] if runs["recorded"] else runs["asserted"],
        Grade.OLD: [] if runs["recorded"] or runs["asserted"] or not runs["is_validated"] else [evidence.date],
    }[evidence.grade]
    return None if evidence.date in allowed else f"is {evidence.grade} {evidence.date}, LocalStack has {runs}"


def test_grades_and_dates_are_those_of_the_tests_they_cite() -> None:
    """`recorded` needs an answer recorded on that day, `asserted` a passing run without one, `old` neither."""
    wrong = [
        f"{id_}: {evidence.source} {reason}"
        for id_, evidence in every_evidence()
        if evidence.source.startswith(LOCALSTACK_TESTS)
        and evidence.grade is not Grade.OPEN
        and (reason := _grade_problem(evidence))
    ]

    assert wrong == []


@pytest.mark.parametrize(
    ("grade", "date"),
    [
        (Grade.RECORDED, "2025-03-29"),  # a day late
        (Grade.ASSERTED, "2025-03-28"),  # an answer was recorded
        (Grade.OLD, "undated"),
    ],
)
def test_a_wrong_grade_or_date_is_noticed(grade: Grade, date: str) -> None:
    source = LOCALSTACK_TESTS + "sqs/test_sqs.py::test_fifo_delete_after_visibility_timeout"

    assert _grade_problem(Evidence(Grade.RECORDED, source, "2025-03-28")) is None
    assert _grade_problem(Evidence(grade, source, date)) is not None
    assert _grade_problem(Evidence(grade, source + "_of_nobody", date)) is not None


def test_no_verdict_rests_on_an_error_code_that_nobody_saw() -> None:
    """If AWS's answer is only documented or inferred, a test may require a refusal, but not its code or text."""
    tests = _tests()
    assert set(tests) == set(PROMISES)

    def rests_on_a_code(promise: Promise) -> bool:
        return promise.grade not in _SEEN and _CODES.search(tests[promise.id]) is not None

    assert [id_ for id_, promise in PROMISES.items() if rests_on_a_code(promise)] == sorted(_DOCUMENTED_CODES)


def test_the_grade_of_a_promise_is_that_of_its_strongest_evidence() -> None:
    weak, strong = Evidence(Grade.OPEN, "us", "2026-11-20"), Evidence(Grade.ASSERTED, "them", "2026-05-23")

    assert replace(PROMISES["GRP-01"], evidence=(weak, strong)).grade is Grade.ASSERTED
    assert PROMISES["VIS-01"].grade is Grade.RECORDED


def test_every_promise_has_evidence_and_a_known_saboteur() -> None:
    for promise in PROMISES.values():
        assert promise.evidence, promise.id
        assert promise.saboteurs, promise.id
        assert set(promise.saboteurs) <= set(SABOTEURS), promise.id


def test_every_promise_lists_its_strongest_evidence_first() -> None:
    strongest_first = [*Grade]
    for promise in PROMISES.values():
        places = [strongest_first.index(evidence.grade) for evidence in promise.evidence]
        assert places == sorted(places), promise.id


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
    """A fact about AWS is not dropped silently, and a reason does not outlive its fact or its cause."""
    facts = {f"{area}-{number}" for area, numbers in _NUMBERS.items() for number in numbers.split()}
    left_out = untested_evidence()

    assert sorted(facts - set(PROMISES) - set(left_out)) == []
    assert sorted(set(left_out) - facts) == []
    assert sorted(set(left_out) & set(PROMISES)) == []
    assert list(left_out) == sorted(left_out)
    assert [id_ for id_, evidence in left_out.items() if not evidence] == []
