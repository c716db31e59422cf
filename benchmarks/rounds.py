"""Measurements side by side: every cell once a round, so that a slow minute of the machine hits all of them."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """One quantity, once a round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the median of the rounds."""
        return statistics.median(self.values)

    @property
    def noise(self) -> str:
        """Return how far the rounds lie apart, in percent of the median."""
        return f"{(max(self.values) - min(self.values)) / self.median:.0%}"

    def over(self, other: "Measurement") -> "Measurement":
        """Return the ratios, round by round."""
        return Measurement(tuple(mine / its for mine, its in zip(self.values, other.values, strict=True)))

    @property
    def ratio(self) -> str:
        """Return median, least and most, as ratios are shown."""
        return f"{self.median:.2f} ({min(self.values):.2f} to {max(self.values):.2f})"


def interleave[K](cells: Mapping[K, Callable[[], float]], rounds: int) -> dict[K, Measurement]:
    """Return what each cell gave, after running all of them that many times, every other time from the end."""
    values: dict[K, list[float]] = {key: [] for key in cells}
    for number in range(rounds):
        order = list(cells.items())
        for key, measure in order if number % 2 == 0 else reversed(order):
            values[key].append(measure())
    return {key: Measurement(tuple(seen)) for key, seen in values.items()}
