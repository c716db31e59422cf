"""Two thousand random services, and saboteurs between them and SQS: what `test_simulated_recordings` shows in part."""

from collections import Counter
from pathlib import Path

import pytest

from sluice.judge.checker.verdict import PropertyStatus
from tests.support.histories.simulated_recordings import Part, record_life
from tests.support.oracle.lives import judge

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]
_SABOTAGED = {
    "deliver-twice": {"B1"},
    "reverse-batch": {"C2"},
    "corrupt-bodies": {"G1", "G2"},
    "ignore-delete": {"A8"},
    "ignore-purge": {"A8"},
}
_OFTEN = {"ignore-purge": "purge"}
_SEEDS_OF_SABOTEUR = 100


@pytest.mark.parametrize("first", range(0, 2_000, 250))
def test_lawful_recordings_have_no_violation(first: int, tmp_path: Path) -> None:
    """Each seed is another service that keeps every promise; each parameter is 250 of the 2,000 seeds."""
    for seed in range(first, first + 250):
        life = record_life(seed, tmp_path / str(seed))
        found = [violation.anomaly for violation in life.check().violations]
        assert found == [], (seed, life.part)


@pytest.mark.parametrize("first", range(20_000, 20_400, 100))
def test_the_oracle_calls_no_lawful_service_impossible(first: int, tmp_path: Path) -> None:
    """An oracle that did would prove nothing about the sabotaged services below."""
    for seed in range(first, first + 100):
        assert judge(record_life(seed, tmp_path / str(seed), part=Part())).is_possible is not False, seed


@pytest.mark.parametrize("saboteur", _SABOTAGED)
def test_a_sabotaged_service_is_found_out(saboteur: str, tmp_path: Path) -> None:
    """A recording that no run of the queues explains is never VALID.

    In other lives the saboteur had no visible effect.
    """
    found: Counter[str] = Counter()
    impossible, invalid = 0, 0
    for seed in range(5_000, 5_000 + _SEEDS_OF_SABOTEUR):
        life = record_life(seed, tmp_path / str(seed), part=Part(), saboteur_name=saboteur, often=_OFTEN.get(saboteur))
        judged = judge(life)
        found.update({violation.anomaly for violation in judged.verdict.violations})
        impossible += judged.is_possible is False
        invalid += judged.verdict.status is PropertyStatus.INVALID
        assert judged.is_possible is not False or judged.verdict.status is not PropertyStatus.VALID, seed

    assert _SABOTAGED[saboteur] <= found.keys()
    assert invalid > 1
    assert impossible > 1 or saboteur == "corrupt-bodies"  # of bodies the oracle knows nothing
