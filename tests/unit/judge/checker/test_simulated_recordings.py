"""The checker on recordings of random services: a lawful service is never INVALID, a sabotaged one never VALID."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.errors import HistoryError
from sluice.judge.checker.verdict import PropertyStatus
from tests.support.histories.simulated_recordings import Part, record_life
from tests.support.oracle.lives import judge

_SEEDS = 40


@pytest.mark.parametrize("first", range(0, _SEEDS, 20))
def test_every_recording_of_a_lawful_service_is_without_violation(first: int, tmp_path: Path) -> None:
    """Everything is recorded, or everything after an instant, or a part of the service's calls."""
    for seed in range(first, first + 20):
        life = record_life(seed, tmp_path / str(seed))

        verdict = life.check()

        assert [violation.anomaly for violation in verdict.violations] == [], (seed, life.part)
        assert verdict.status is not PropertyStatus.INVALID, (seed, life.part)


@pytest.mark.parametrize("seed", [207, 354, 540, 761, 812, 938, 1453, 1556, 60034])
def test_lawful_services_that_were_once_called_invalid_are_not(seed: int, tmp_path: Path) -> None:
    """Two topics gave one number (B3); a copy, or its id, came from just before the recording (A2, A4, C5, E2, G4)."""
    assert record_life(seed, tmp_path).check().violations == ()


@pytest.mark.parametrize("saboteur", ["ignore-delete", "reverse-batch", "deliver-twice"])
def test_a_recording_that_no_run_explains_is_not_valid(saboteur: str, tmp_path: Path) -> None:
    """The oracle judges whole recordings. With seeds 5057 and 5089 a poll waited while a delete was answered."""
    lives = {
        seed: judge(record_life(seed, tmp_path / str(seed), part=Part(), saboteur_name=saboteur))
        for seed in (5002, 5008, 5010, 5057, 5089)
    }

    assert [seed for seed, judged in lives.items() if judged.is_possible is False]
    assert not [
        seed
        for seed, judged in lives.items()
        if judged.is_possible is False and judged.verdict.status is PropertyStatus.VALID
    ]


def test_a_journal_under_a_second_name_is_refused(tmp_path: Path) -> None:
    life = record_life(1, tmp_path / "life", part=Part())
    journal = min(life.folder.glob("*.arrows"))
    shutil.copy(journal, life.folder / "copy.arrows")

    with pytest.raises(HistoryError, match=r"has the journal of p0-.* twice, allowed is once; remove the copy"):
        life.check()


def test_receives_that_are_counted_and_not_recorded_are_reported(tmp_path: Path) -> None:
    """A consumer without a recorder receives messages, and releases some of them."""
    left_out = [record_life(seed, tmp_path / str(seed), part=Part(is_consumer_left_out=True)) for seed in range(8, 16)]

    verdicts = [replace(life, part=Part()).check() for life in left_out]

    assert any("that are counted are not on record" in why for verdict in verdicts for why in verdict.unknowns)
