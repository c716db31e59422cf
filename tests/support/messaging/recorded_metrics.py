"""Measurements as they were put."""

from collections.abc import Mapping


class RecordedMetrics(list[Mapping[str, float]]):
    """Keeps each measurement."""

    put = list.append
