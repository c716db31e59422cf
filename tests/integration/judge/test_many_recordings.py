"""Two thousand random services, and saboteurs between them and SQS: what `test_simulated_recordings` shows in part."""

from collections import Counter
from pathlib import Path

import pytest

from sluice.judge.checker.verdict import Status
from tests.support.histories.simulated_recordings import Part, recorded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]
_SABOTAGED = {
    "deliver-twice": {"B1"},
    "reverse-batch": {"C2"},
    "corrupt-bodies": {"G1", "G2"},
    "ignore-delete": {"A8"},
}
_SEEDS_OF_SABOTEUR = 16


@pytest.mark.parametrize("first", range(0, 2_000, 250))
def test_no_lawful_service_is_called_invalid(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 250):
        life = recorded(seed, tmp_path / str(seed))
        found = [violation.anomaly for violation in life.check().violations]
        assert found == [], (seed, life.part)


@pytest.mark.parametrize("saboteur", _SABOTAGED)
def test_a_sabotaged_service_is_found_out(saboteur: str, tmp_path: Path) -> None:
    """By its anomaly, in some of the lives; whether it had something to break in the others depends on them."""
    verdicts = [
        recorded(seed, tmp_path / str(seed), part=Part(), saboteur_name=saboteur).check()
        for seed in range(5_000, 5_000 + _SEEDS_OF_SABOTEUR)
    ]

    found = Counter(anomaly for verdict in verdicts for anomaly in {each.anomaly for each in verdict.violations})
    assert sum(verdict.status is Status.INVALID for verdict in verdicts) > _SEEDS_OF_SABOTEUR / 5
    assert _SABOTAGED[saboteur] <= found.keys()
