"""Mutants of pairs: a table of rules by circumstances, each cell a rule that does not hold in a circumstance.

A rule can be held well by itself and be broken for messages that were redriven, delayed or delivered by a topic. So
every row is a rule of the model, every column a circumstance that another rule brings about, and a cell is the model
in which the rule is broken exactly where the circumstance holds. `table` has the cells that are no mutants, each with
its reason; `tests/unit/contract_tests/test_mutants.py` holds that no cell is without one of the two.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.pairs.circumstances import OF_PUBLISHES, OF_QUEUES, tracking
from tests.mutants.pairs.rules import QUEUE_ROWS, TOPIC_ROWS, Row
from tests.mutants.pairs.table import REASONS

__all__ = ["CELLS", "MUTANTS", "REASONS", "breaking", "noting"]

type Cell = tuple[str, str, str]
"""Table, row and column."""
_TABLES: Mapping[str, tuple[tuple[Row, ...], Mapping[str, Callable[..., bool]]]] = {
    "queue": (QUEUE_ROWS, OF_QUEUES),
    "topic": (TOPIC_ROWS, OF_PUBLISHES),
}
CELLS: dict[Cell, Row] = {
    (table, row.name, column): row for table, (rows, columns) in _TABLES.items() for row in rows for column in columns
}


def _mutant(cell: Cell, row: Row) -> Mutant:
    table, _, column = cell
    broken = row.broken(getattr(row.owner, row.rule), _TABLES[table][1][column])
    name = f"{table}: {row.name} x {column}".replace(" ", "_")
    return Mutant(name, f"{row.does}: {column}", row.owner, row.rule, broken, pair=cell)


MUTANTS = tuple(_mutant(cell, row) for cell, row in CELLS.items() if cell not in REASONS)


@contextmanager
def breaking(mutant: Mutant) -> Iterator[None]:
    """Break a rule where the circumstance of the mutant's cell holds."""
    assert mutant.pair is not None, f"{mutant.name} is no pair"
    row, (table, _, column) = CELLS[mutant.pair], mutant.pair
    holds = _TABLES[table][1][column]
    with tracking(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(row.owner, row.rule, row.broken(getattr(row.owner, row.rule), holds))
        yield


@contextmanager
def noting(reached: set[Any]) -> Iterator[None]:
    """Keep the cells whose rule meets its circumstance, and break nothing: only these can be noticed."""

    def note(table: str, row: Row) -> Callable[..., bool]:
        def holds(*subject: Any) -> bool:
            for column, circumstance in _TABLES[table][1].items():
                if (table, row.name, column) not in reached and circumstance(*subject):
                    reached.add((table, row.name, column))
            return False

        return holds

    with tracking(), pytest.MonkeyPatch.context() as patch:
        for table, (rows, _) in _TABLES.items():
            for row in rows:
                patch.setattr(row.owner, row.rule, row.broken(getattr(row.owner, row.rule), note(table, row)))
        yield
