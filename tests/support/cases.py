"""The cases of a large table that `make test` tries; `make slow` tries all of them."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def diagonal(step: int, *tables: Iterable[Any]) -> list[Any]:
    """Return every combination of values; those that are not on each `step`-th diagonal are marked slow.

    Each value of a table is in at least one case of `make test` if another table has at least `step` values.
    """
    return [
        pytest.param(*values, id="-".join(getattr(value, "name", str(value)) for value in values), marks=marks)
        for places in product(*(tuple(enumerate(table)) for table in tables))
        for values in [[value for _, value in places]]
        for marks in [[pytest.mark.slow] * (sum(place for place, _ in places) % step > 0)]
    ]
