"""The mutants of the model: each overrides a rule that is there."""

import pytest

from contract_tests.proving.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_overrides_a_rule_of_the_model(mutant: Mutant) -> None:
    """A rule that was renamed would end every run under `--mutants`, which no everyday check starts."""
    assert hasattr(mutant.owner, mutant.rule)
    assert getattr(mutant.owner, mutant.rule) is not mutant.instead
    assert mutant.read_by is None or callable(getattr(*mutant.read_by))


def test_a_number_of_a_module_says_who_reads_it() -> None:
    """Only a rule that is called shows that a promise reaches it."""
    assert not [mutant.name for mutant in MUTANTS.values() if not callable(mutant.instead) and mutant.read_by is None]
