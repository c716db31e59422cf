"""The results of a run are stored in a file, and read back unchanged."""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import ConfigError, HistoryError
from sluice.judge.checker.verdict import Property, PropertyStatus, Verdict
from spark_load.baselines import results
from spark_load.profiles import profile
from tests.support.drawn_results import result

TINY = profile.load("tiny").profile
QUANTILES = {"p50": 1_000, "p95": 2_000, "p99": 3_000, "max": 9_000}


def _line(seconds: float) -> str:
    """Return the stored line of a run that took so many seconds."""
    return json.dumps(asdict(result("huge", {"x": seconds})))


def verdict(run: str = "r", **described: Any) -> Verdict:
    """Return a valid verdict of the profile tiny on one queue."""
    return Verdict(
        properties=(Property(anomaly="G1", opportunities=1),),
        measures={
            "published": {"count": 1, "seconds": 1.0, "per_second": 1.0},
            "lateness_us": QUANTILES,
            "publish_latency_us": QUANTILES,
            "queues": {
                "q.fifo": {"received": {"count": 1, "per_second": 1}, "latency_us": QUANTILES, "drain_seconds": 0.5}
            },
            "events": 1,
            "groups": 1,
            "suspect_groups": 0,
        },
        run={
            "run": run,
            "profile": TINY.as_json(),
            "profile_name": "tiny",
            "environment": "local",
            "target": "localstack",
            "transport": "boto3",
            "saboteur": None,
            "attempts": 1,
            "machine": {"system": "Linux-7", "processor": "x86_64", "model": "m", "cores": 2},
            "versions": {"python": "3.13.0"},
        }
        | described,
    )


def test_every_time_of_a_run_is_kept_in_seconds() -> None:
    """The verdict has microseconds: of the publishing calls, and of each queue's latency and drain."""
    found = results.result_of(verdict())

    assert found.seconds == {
        "publish call p50": 0.001,
        "publish call p95": 0.002,
        "publish call p99": 0.003,
        "q.fifo p50": 0.001,
        "q.fifo p95": 0.002,
        "q.fifo p99": 0.003,
        "q.fifo drain": 0.5,
    }
    assert found.run == "r"
    assert found.profile_name == "tiny"
    assert found.status == PropertyStatus.VALID


def test_the_kind_of_a_machine_is_its_processor_and_not_its_kernel() -> None:
    """Only runs on one kind of machine are compared; a newer kernel must not end the comparison."""
    machine = verdict().run["machine"]
    kinds = [
        results.result_of(verdict(machine={**machine, **other})).kind
        for other in ({}, {"system": "Linux-8"}, {"model": "n"}, {"cores": 4})
    ]

    assert kinds[0] == kinds[1]
    assert kinds[0] not in kinds[2:]


def test_another_payload_size_changes_the_profiles_digest() -> None:
    """Runs are compared only if their digests are equal."""
    other = replace(TINY, payload_bytes=129)

    assert (
        results.result_of(verdict(profile=other.as_json())).profile_digest
        != results.result_of(verdict()).profile_digest
    )


def test_removed_profile_fields_at_their_default_keep_the_digest() -> None:
    """A result of an earlier version, whose profiles had two more fields, is still compared with new ones."""
    before = profile.Profile(**TINY.as_json()).as_json() | {"producers_per_group": 1, "batch_same_group": False}
    digest = hashlib.sha256(json.dumps(before, sort_keys=True).encode()).hexdigest()[:16]

    assert results.result_of(verdict(profile=before)).profile_digest == digest
    assert results.result_of(verdict()).profile_digest == digest


@pytest.mark.parametrize(
    ("described", "why"),
    [
        ({"saboteur": "corrupt-bodies"}, "r was sabotaged, allowed are runs that measure the service alone"),
        ({"attempts": 2}, "r was resumed, allowed are runs"),
        ({"profile": {"gone": 1}}, "the profile of r is not one of this version"),
    ],
)
def test_a_sabotaged_or_resumed_run_has_no_result(described: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        results.result_of(verdict(**described))


def test_results_are_read_in_order_and_a_repeated_run_once(tmp_path: Path) -> None:
    """Of two lines of one run the later one counts."""
    path = tmp_path / "results.jsonl"
    for each in (result("a", {"x": 1}), result("b", {"x": 2}), result("a", {"x": 3})):
        results.append(each, path)

    assert results.read(path) == [result("b", {"x": 2}), result("a", {"x": 3})]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2 of .* is damaged: it is"),
        ('{"run": 1}', "line 2 of .* is damaged: "),
        ("[]", "line 2 of .* is damaged: it is"),
        (
            _line(1e308),
            r"line 2 of .* is damaged: seconds.x is 1e\+308, Input should be less than or equal to 1000000000",
        ),
        (_line(0), "line 2 of .* is damaged: seconds.x is 0, Input should be greater than or equal to 0.000000001"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, why: str) -> None:
    """In one line, with the value and what is allowed."""
    path = tmp_path / "results.jsonl"
    results.append(result("a", {"x": 1}), path)
    path.write_text(path.read_text() + line + "\n")

    with pytest.raises(HistoryError, match=why) as refused:
        results.read(path)
    assert "\n" not in str(refused.value)


def test_a_torn_last_line_damages_no_later_result(tmp_path: Path) -> None:
    """A full disk may have cut the last line; the next result begins a line of its own."""
    path = tmp_path / "results.jsonl"
    path.write_text('{"half": 1')
    results.append(result("a", {"x": 1}), path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))  # as the refusal advises

    assert results.read(path) == [result("a", {"x": 1})]


def test_a_result_of_a_newer_sluice_is_refused(tmp_path: Path) -> None:
    results.append(replace(result("a", {"x": 1}), schema_version=2), tmp_path / "results.jsonl")

    with pytest.raises(HistoryError, match=r"line 1 of .* has schema version 2, this version of Sluice reads up to 1"):
        results.read(tmp_path / "results.jsonl")


def test_a_missing_results_file_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`sluice load run` adds each run to results.jsonl in its --runs-dir"):
        results.read(tmp_path / "results.jsonl")
