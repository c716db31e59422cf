"""Which cases of a large table `make test` tries; the night tries all of them."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def diagonal(step: int, *tables: Iterable[Any]) -> list[Any]:
    """Return every combination of values, of which those are slow that are not on each `step`-th diagonal.

    A value of a table with at least `step` values beside it is in one case of `make test` or more.
    """
    return [
        pytest.param(*values, id="-".join(getattr(value, "name", str(value)) for value in values), marks=marks)
        for places in product(*(tuple(enumerate(table)) for table in tables))
        for values in [[value for _, value in places]]
        for marks in [[pytest.mark.slow] * (sum(place for place, _ in places) % step > 0)]
    ]
