"""Rule mutants: the model with one rule broken, and which promise notices.

A mutant overrides one rule of `sluice.simulator.model` (a method, a function or a number). `emulators` has the rules
that emulators are known to break; `pairs` breaks a rule where another one has acted; the other modules ask of every
rule of one part of the model: what if not?
`--mutants` runs every promise against every mutant on the simulator.
"""

import importlib
from collections.abc import Mapping

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]

_PARTS = ("emulators", "messages", "queues", "dead_letters", "topics", "filters", "mappings", "pairs")
MUTANTS: Mapping[str, Mutant] = {
    mutant.name: mutant for part in _PARTS for mutant in importlib.import_module(f"{__name__}.{part}").MUTANTS
}
