"""A sink that keeps the measurements it receives."""

from collections.abc import Mapping


class RecordedMetrics(list[Mapping[str, float]]):
    """Keeps each measurement."""

    put = list.append
