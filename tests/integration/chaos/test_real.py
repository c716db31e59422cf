"""A run with real processes finds a broken worker or relay, and shrinks the failure to a profile that can be run."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.judge.checker.verdict import PropertyStatus
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import RELAYS, FaultKind
from spark_load.profiles import profile, trace
from tests.chaos.real import main, run_and_judge, violations
from tests.support.processes.function_loads import FunctionLoad

MESSAGES, FAULTS, TRIES = 320, 10, 2


@pytest.mark.slow  # three runs of half a minute or more, of which one would show less
def test_workers_without_an_inbox_are_found_invalid(tmp_path: Path) -> None:
    """Each worker waits half a second between commit and delete, and has work on four lanes when it is killed."""
    options = ["--variant", "no-inbox", "--seed", "8", "--messages", str(MESSAGES), "--seconds", "16"]

    ended = CliRunner().invoke(main, [*options, "--tries", str(TRIES), "--output", str(tmp_path)])

    assert ended.exit_code == 1, ended.output
    assert "its effect was committed 2 times" in ended.output
    assert ended.output.count(" messages: ") <= 1 + TRIES
    least = profile.load(str(tmp_path / "least.yaml"))
    assert least.trace_file is not None
    recorded, _ = trace.read(least.trace_file)
    assert len(recorded) == MESSAGES  # two tries are for faults alone
    assert 0 < len(least.profile.faults.given) <= FAULTS


def _load(seconds: int) -> list[tuple[int, int]]:
    return [(number * 50_000, number % 7) for number in range(20 * seconds)]


def _fault(kind: FaultKind, target: str, at_seconds: float, until_seconds: float) -> ScheduledFault[FaultKind]:
    return ScheduledFault(kind=kind, target=target, at_seconds=at_seconds, until_seconds=until_seconds)


@pytest.mark.slow  # a minute; the short chaos run has these faults, too
@pytest.mark.parametrize("variant", ["sound", "bundles"])
def test_relays_that_are_killed_ended_and_frozen_lose_nothing(variant: str) -> None:
    """Each fault hits both relays, so it hits the leader; the lease of a killed leader runs out first."""
    faults = [
        _fault(kind, relay, at_seconds, at_seconds + lasting)
        for kind, at_seconds, lasting in (
            (FaultKind.FREEZE, 5, 2),
            (FaultKind.TERMINATE, 7.5, 0),
            (FaultKind.KILL, 9, 0),
        )
        for relay in RELAYS
    ]

    verdict, objections = run_and_judge(faults, _load(10), seed=1, variant=variant)

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    assert objections == []
    assert len(verdict.measures["faults"]) == len(faults)
    assert ("bundles" in verdict.measures) == (variant == "bundles")


@pytest.mark.slow  # a minute; the relay's machine finds such a relay, too
def test_a_relay_that_takes_no_answer_for_success_is_found_invalid() -> None:
    faults = [_fault(FaultKind.CUT, f"{relay}:endpoint", 5, 7) for relay in RELAYS]

    verdict, _ = run_and_judge(faults, _load(8), seed=1, variant="unanswered-is-sent")

    assert verdict.status is PropertyStatus.INVALID
    assert "A1" in {violation.anomaly for violation in verdict.violations}


@pytest.mark.parametrize(  # one to three minutes each on a busy machine
    "seed", [pytest.param(1, marks=pytest.mark.slow), *(pytest.param(seed, marks=pytest.mark.deep) for seed in (2, 3))]
)
def test_a_function_is_valid_under_kills_timeouts_throttles_and_wrong_answers(seed: int) -> None:
    """Kills, timeouts, changes of concurrency, wrong answers, and failures in the middle of batches."""
    load = FunctionLoad.of_seed(seed)

    verdict, objections = run_and_judge(load.faults, load.messages, seed=seed, variant="lambda")

    assert verdict.violations == ()
    assert objections == []
    assert verdict.status == PropertyStatus.VALID
    assert len(verdict.measures["faults"]) == len(load.faults)


@pytest.mark.slow  # one to three minutes each on a busy machine
@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("report-only-the-failed", "the effect of the second was committed before the first was begun"),
        ("stop-the-whole-batch", "was reported untouched, and nothing of its group had failed"),
        ("delete-before-commit", "it has no effect, is in no queue and no DLQ"),
        ("count-receives-as-attempts", "and their attempts are not used up"),
    ],
)
def test_a_real_function_with_a_classic_mistake_is_found_invalid(mistake: str, sentence: str) -> None:
    """The same messages and faults are valid with the product's function."""
    load = FunctionLoad.of_seed(1)

    found = violations(load.faults, load.messages, seed=1, variant=mistake)

    assert any(sentence in each for each in found), found
