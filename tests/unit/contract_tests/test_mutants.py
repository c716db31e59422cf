"""The mutants of the model: each overrides a rule that is there."""

from tests.mutants import MUTANTS, Mutant


def _overrides(mutant: Mutant) -> bool:
    is_read = mutant.read_by is None or callable(getattr(*mutant.read_by))
    return is_read and getattr(mutant.owner, mutant.rule, mutant.instead) is not mutant.instead


def test_each_mutant_overrides_a_rule_of_the_model() -> None:
    """A rule that was renamed would end every run under `--mutants`, which no everyday check starts."""
    assert [name for name, mutant in MUTANTS.items() if not _overrides(mutant)] == []


def test_a_number_of_a_module_says_who_reads_it() -> None:
    """Only a rule that is called shows that a promise reaches it."""
    assert not [mutant.name for mutant in MUTANTS.values() if not callable(mutant.instead) and mutant.read_by is None]
