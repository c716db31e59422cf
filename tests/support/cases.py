"""The cases of a large table that `make test` tries; `make slow` tries all of them."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def one_case_in(step: int, *tables: Iterable[Any]) -> list[Any]:
    """Return every combination of the tables' values as a case; one in `step` is quick, the others are marked slow.

    A case is quick if the places of its values in their tables add up to a multiple of `step`. So each value of a table
    is in at least one quick case if another table has at least `step` values.
    """
    return [
        pytest.param(*values, id="-".join(getattr(value, "name", str(value)) for value in values), marks=marks)
        for places in product(*(tuple(enumerate(table)) for table in tables))
        for values in [[value for _, value in places]]
        for marks in [[pytest.mark.slow] * (sum(place for place, _ in places) % step > 0)]
    ]
